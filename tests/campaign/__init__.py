"""A campaign of random kills, failing system calls and malformed files on the commands whose work is worth keeping.

`make campaign` runs it (`python -m tests.campaign --help`); `test_campaign.py` runs a few cases at night.
A case is a name and a ``check(shared, folder)``, which says what is wrong in one sentence, or "": ``folder`` is empty
and its own, ``shared`` is for what is expensive to prepare. The cases are in ``disturbed.py`` and ``inputs.py``.
"""
