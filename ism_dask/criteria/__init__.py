"""The prediction criterion: how much of y X W explains, on a block of rows or on all; curvature."""
