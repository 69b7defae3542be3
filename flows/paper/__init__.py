"""The tables and figures of the paper, measured anew and set beside what was published."""
