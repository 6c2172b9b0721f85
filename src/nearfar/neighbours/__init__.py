"""Nearest neighbours of vectors: exact search in blocks, on CPU or GPU."""
