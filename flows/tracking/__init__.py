"""Runs under Prefect: they report progress and their end to the server, and obey a cancellation."""
