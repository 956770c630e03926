"""Attacks on the command line: damaged files, hostile flags, misbehaving environments, kills, full disks, races.

`python -m campaign` runs it and prints a table. Each kind of attack is a module with `run(context) -> Tally`.
"""
