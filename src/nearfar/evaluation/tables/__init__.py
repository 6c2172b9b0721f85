"""Results as tables: the same rows as Markdown for files and as rich tables for screens. Nothing is printed here."""
