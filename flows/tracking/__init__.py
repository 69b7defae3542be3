"""A run under Prefect: the server learns how far it is, how it ended, and asks it to stop."""
