"""The former place of `ism_dask.progress_bar`, as an alias."""

from ism_dask.observe.progress_bar import progress_bar

__all__ = ["progress_bar"]
