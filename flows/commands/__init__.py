"""The commands, one file each: `run`, an `EXAMPLE`, and whether it is `HIDDEN` from the list.

What they stand on is imported when they run: `--help` does not wait for it.
"""
