"""Settings of runs, each declared once: option, form field, bound, file."""
