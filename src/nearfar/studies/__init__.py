"""Studies: a table described by a TOML file -> its cells -> jobs -> results -> means, intervals, tests and a page.

The modules, in the order of the data: ``spec`` (what a study file says) and ``read`` (TOML -> spec), ``cells`` (rows x
labels x replicates with checked settings), ``sources`` and ``plan`` (cells -> jobs), ``steps`` (what a job does),
``run`` (``nearfar study``), ``columns`` and ``tests`` (results -> numbers and comparisons), ``table`` (all runs -> the
record study.json), ``page`` and ``plots`` (the record -> Markdown, LaTeX, CSV and pictures), ``papers`` (``nearfar
reproduce``).
"""
