import sys

from self_imitation.cli.main import main

sys.exit(main(["bench", *sys.argv[1:]]))
