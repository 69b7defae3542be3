"""The old place of `ism_dask.progress_bar`."""

from ism_dask.observe.progress_bar import progress_bar

__all__ = ["progress_bar"]
