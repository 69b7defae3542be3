"""One module per raw format; each turns raw files into a `RawData`."""

from storage.loaders.base import RawData

__all__ = ["RawData"]
