"""Studies: a table described by a TOML file -> its cells -> jobs -> results -> means, intervals, tests and a page.

The modules, in the order of the data: ``spec`` (what a study file says), ``cells`` (rows x labels x replicates with
checked settings, and their jobs), ``sources`` (the data and models that jobs read), ``steps`` (what a job does),
``run`` (``nearfar study``), ``scores`` (results -> runs and the numbers of their columns, and what is resampled),
``table`` (all runs -> the record study.json), ``page`` and ``plots`` (the record -> one frame -> Markdown, LaTeX, CSV
and pictures), ``papers`` (``nearfar reproduce``).
"""
