"""``nearfar report``: one page on runs and results."""
