"""Settings of runs: each is declared once, with its option, form field, bounds and help text."""
