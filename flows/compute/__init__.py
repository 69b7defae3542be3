"""The Dask clusters that a run can compute its tiles on, and how it joins them."""
