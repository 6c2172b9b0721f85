"""The training loop and its parts, for any training method."""
