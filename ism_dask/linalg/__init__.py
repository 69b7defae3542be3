"""Linear algebra: leading eigenpairs, subspaces, and Cholesky factors."""
