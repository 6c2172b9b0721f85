"""``nearfar evaluate``: scores of a model on tasks."""
