"""Encode -> numbers: similarity tasks and the statistics that say what the numbers mean."""
