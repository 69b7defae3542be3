"""The pictures of a fit, for notebooks and for reports alike."""
