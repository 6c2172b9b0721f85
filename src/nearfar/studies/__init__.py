"""Studies: a table described by a TOML file -> its cells -> jobs -> results -> means, intervals, tests and a page.

The modules, in the order of the data: ``spec`` (what a study file says), ``cells`` (rows x labels x replicates with
checked settings), ``plan`` (cells -> jobs), ``steps`` (what a job does), ``run`` (``nearfar study``), ``collect``
(results -> runs), ``scores`` (runs -> the numbers of their columns, and what is resampled), ``table`` (all runs -> the
record study.json), ``layout``, ``page`` and ``plots`` (the record -> Markdown, LaTeX, CSV and pictures), ``papers``
(``nearfar reproduce``).
"""
