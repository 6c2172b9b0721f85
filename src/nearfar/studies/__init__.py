"""Studies: a table described by a TOML file -> its cells -> jobs -> results -> means, intervals, tests and a page.

The modules, in the order of the data: ``spec`` (what a study file says) and ``read`` (TOML -> spec), ``cells`` (rows x
labels x replicates with checked settings), ``sources`` and ``plan`` (cells -> jobs), ``steps`` (what a job does),
``run`` (``nearfar study``), ``collect`` and ``columns`` (results -> numbers), ``resampling`` and ``comparisons`` (their
intervals and tests), ``table`` (all runs -> the record study.json), ``layout``, ``page`` and ``plots`` (the record ->
Markdown, LaTeX, CSV and pictures), ``papers`` (``nearfar reproduce``).
"""
