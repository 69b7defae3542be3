"""Loaders of raw files: each module reads one raw format into a `RawData`."""
