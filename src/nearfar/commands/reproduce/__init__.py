"""``nearfar reproduce``: the tables and figures of the papers, each a study file in ``tables``."""
