"""Engines for kernels with a low-rank factor, which turns sums over pairs into sums over rows."""
