"""The data sets of the paper and of scikit-learn, which are stored by their names."""

from flows.builtin.catalogue import ingest

__all__ = ["ingest"]
