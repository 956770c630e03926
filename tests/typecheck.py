"""The run-time check of every signature: as usual in Python, a whole number will do where a float is asked for."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
