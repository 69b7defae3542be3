"""Engines for kernels with a low-rank factor: sums over pairs become sums over rows."""
