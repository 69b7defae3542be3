"""The comparison of the published paper: its rivals, and its tables and figures measured anew."""
