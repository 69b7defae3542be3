"""Linear algebra of subspaces: leading eigenpairs, and directions in a null space."""
