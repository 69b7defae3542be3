"""`Journal`, `journaled`: old names of `ism_dask.CheckpointedFit` and `saving_checkpoints`."""

from ism_dask.records.checkpoint import CheckpointedFit as Journal
from ism_dask.records.checkpoint import saving_checkpoints as journaled

__all__ = ["Journal", "journaled"]
