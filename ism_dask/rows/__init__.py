"""X cut by rows into shards, in memory or on Dask; no other package knows where tasks run.

A shard is a pure function of its source, so that a lost worker costs time and nothing else. The
results of shards are added in a fixed tree: the same cut gives the same bits on any number of
workers. One shard runs inline; several run on Dask's threads, or on the cluster whose client is
active.
"""

from ism_dask.rows.cluster import is_dask, on_this_machine, side_by_side, task_budget
from ism_dask.rows.shards import ROWS_PER_SHARD, Shards, cut
from ism_dask.rows.tasks import FAN, LoadedShard

__all__ = [
    "FAN",
    "ROWS_PER_SHARD",
    "LoadedShard",
    "Shards",
    "cut",
    "is_dask",
    "on_this_machine",
    "side_by_side",
    "task_budget",
]
