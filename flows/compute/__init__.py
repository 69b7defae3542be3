"""Where the tiles are computed: the Dask clusters that a run can use."""
