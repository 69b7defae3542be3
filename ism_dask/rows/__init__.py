"""X cut by rows into shards, in memory or on Dask; no other package knows where tasks run.

A shard is a pure function of its source, so that a lost worker costs time and nothing else. The
results of shards are added in a fixed tree: the same cut gives the same bits on any number of
workers. One shard runs inline; several run on Dask's threads, or on the cluster whose client is
active.
"""
