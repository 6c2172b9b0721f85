"""The training loop and its parts. Knows no method."""
