"""``nearfar dedup``: a file -> the same file without near-duplicates."""
