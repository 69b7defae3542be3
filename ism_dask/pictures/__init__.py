"""What the pictures of a fit show and in which colours, for notebooks and for reports alike."""
