"""Linear algebra of subspaces: leading eigenvectors, and directions that rows leave out."""
