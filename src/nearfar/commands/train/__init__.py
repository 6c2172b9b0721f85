"""``nearfar train``: from settings to a trained encoder."""
