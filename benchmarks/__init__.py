"""Every figure of the README, measured: `make bench`."""
