"""The explorer page of ``nearfar geometry --page``: layouts, neighbours, columns of a table, and one HTML file."""
