"""The computations behind the flows, without Prefect: each takes settings, returns a summary."""
