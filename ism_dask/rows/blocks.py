"""Deals rows into blocks at random, so that each block has its share of all values of y."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ism_dask._types import Array

# Rows of a block, and of a block of many rows. The regressions of smaller blocks lose accuracy, and
# those of larger ones cost the third power of their rows. The means over many blocks lose less.
BLOCK_ROWS, _SMALL_BLOCK_ROWS, MANY_ROWS = 600, 400, 10_000
# Rows of up to this many numbers, of any type, are brought into memory and dealt there, wherever
# they are stored: MNIST has 47 million.
MEMORY_NUMBERS = 50_000_000
# Larger ones are dealt within ranges of this many rows. Their shards are such ranges, or several,
# as are chunks of a power of two of rows.
RANGE_ROWS = 2048
# Standard errors by which the mean key of a range of unsorted rows differs at most.
_SORTED = 8.0


def rows_of_a_block(n_rows: int) -> int:
    """Return the number of rows of each block of a regression on `n_rows` rows."""
    return BLOCK_ROWS if n_rows < MANY_ROWS else _SMALL_BLOCK_ROWS


def number_of_blocks(n_rows: int, block_rows: int) -> int:
    """Return how many blocks of about `block_rows` rows there are."""
    return max(1, round(n_rows / block_rows))


def fits_memory(shape: Sequence[int]) -> bool:
    """Return whether rows (n, d) have few enough numbers to be brought into memory.

    It depends on neither the type of the numbers nor the machine, and so do all choices of a fit.
    """
    return math.prod(shape) <= MEMORY_NUMBERS


def is_balanced(keys: Array) -> bool:
    """Return whether the mean key of each range of rows is like that of all rows.

    Rows that are sorted by their keys (n,) are not balanced.
    """
    mean, spread = keys.mean(), keys.std()
    bounds = [*range(0, len(keys), RANGE_ROWS), len(keys)]
    return all(
        abs(keys[start:stop].mean() - mean) <= _SORTED * spread / np.sqrt(stop - start)
        for start, stop in pairwise(bounds)
    )


def deal(keys: Array, n_blocks: int, seed: int) -> list[Array]:
    """Return the ascending row numbers of each block; rows of similar keys go to all blocks alike.

    Parameters
    ----------
    keys : (n,) array
        Rows are dealt in the order of their keys, such as classes or numbers y; rows of equal keys
        in a random order.
    n_blocks : int
    seed : int
    """
    rng = np.random.default_rng([seed, len(keys)])
    shuffled = rng.permutation(len(keys))
    order = shuffled[np.argsort(keys[shuffled], kind="stable")]
    # Each round deals to the blocks in another order: else the first block got the smallest keys.
    rounds = -(-len(order) // n_blocks)
    hands = rng.permuted(np.tile(np.arange(n_blocks), (rounds, 1)), axis=1).ravel()[: len(order)]
    # Sorted by hands once: to look for each hand among all rows takes seconds of a million rows.
    by_hand = np.argsort(hands, kind="stable")
    ends = np.cumsum(np.bincount(hands, minlength=n_blocks))
    return [np.sort(part) for part in np.split(order[by_hand], ends[:-1])]
