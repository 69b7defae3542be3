"""Read tables of any origin, and encode their columns as numbers."""
