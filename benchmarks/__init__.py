"""Measurements of the packages: `speed`, `studies` of accuracy, and the comparison of `paper`."""
