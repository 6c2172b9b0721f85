"""One page on runs and results: typed results in, the page in HTML and in Markdown out. No file is opened here."""
