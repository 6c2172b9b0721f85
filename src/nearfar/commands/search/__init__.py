"""``nearfar search``: the nearest texts of a file, for each query."""
