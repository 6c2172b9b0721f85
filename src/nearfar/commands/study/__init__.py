"""``nearfar study``: runs all cells of a study file as jobs, and writes its table."""
