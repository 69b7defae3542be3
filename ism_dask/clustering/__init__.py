"""Clusters of the rows of X W: spectral embedding, its alternation with W, and k-means."""

# Defaults of `mu`: what scores, and labels to avoid, count beside the clusters.
SCORES_WEIGHT, AVOID_WEIGHT = 1.0, 30.0
