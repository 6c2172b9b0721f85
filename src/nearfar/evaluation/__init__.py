"""Evaluation: scores of embeddings, tests of differences between scores, result files, tables and reports."""
