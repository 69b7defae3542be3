"""Measure the tables and figures of the paper anew, and compare them with the published ones."""
