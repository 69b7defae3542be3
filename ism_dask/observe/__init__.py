"""Ways to observe a fit while it runs: events, progress of a pass, a progress bar."""
