"""``nearfar encode``: a file of texts -> a file of embeddings."""
