"""``nearfar encode``: a file of texts to a file of vectors."""
