"""Refreshes: fit a table again when it has changed, compare, and publish the new run."""
