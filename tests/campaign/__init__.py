"""A campaign of random kills, failing system calls and malformed inputs on the commands whose work is worth keeping.

`make campaign` runs it (`python -m tests.campaign --help`); `test_short.py` runs a few cases of each part in every
`make test`. A part is a module with `cases(seed)`, which yields `case.Case`s; `PARTS` lists them.
"""
