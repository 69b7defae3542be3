"""What the data say with which certainty: tests and intervals."""
