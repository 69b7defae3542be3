"""What stays up on this machine for the runs: servers, workers, schedulers."""
