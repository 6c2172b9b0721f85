"""A campaign of random kills, failing system calls, malformed inputs, equality checks and load on every command.

`make campaign` runs it (`python -m tests.campaign --help`); `test_short.py` runs a few cases of each part in every
`make test`. A part is a module with `cases(seed)`, which yields `case.Case`s; `PARTS` lists them.
"""
