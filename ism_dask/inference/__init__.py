"""What the data say with which certainty: intervals of W."""
