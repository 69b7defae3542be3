"""What a run does, without Prefect: rows and labels in, a summary out."""
