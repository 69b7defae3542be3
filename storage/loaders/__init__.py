"""Loaders of raw files: each module reads one raw format into a `RawData`."""

from storage.loaders.base import RawData

__all__ = ["RawData"]
