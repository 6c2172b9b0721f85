"""Text on disk, on the hub or generated -> rows -> batches. No model."""
