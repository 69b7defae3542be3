"""Measure every figure of the README: `make bench`."""
