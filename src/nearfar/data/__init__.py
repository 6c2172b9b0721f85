"""Read text from disk or the hub, or generate it; turn rows into batches. Imports no model."""
