"""An adversarial campaign against the command line: damaged files, hostile flags, faulty environments, kills, full disks.

`python -m campaign` runs it and prints a table. Each kind of attack is a module with `run(context) -> Tally`.
"""
