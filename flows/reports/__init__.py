"""Reports of finished runs: summaries, figures, HTML and Markdown pages, and their index."""
