"""Clusters of the rows of X W: spectral embedding, its alternation with W, and k-means."""
