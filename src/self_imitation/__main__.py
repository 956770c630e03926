"""`python -m self_imitation` is `sil`."""

import sys

from self_imitation.cli.main import main

sys.exit(main())
