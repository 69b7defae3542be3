"""Deals rows into blocks at random, so that each block has its share of all values of y."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array

# Rows of a block. The regressions of smaller blocks lose accuracy, and those of larger ones cost
# the third power of their rows.
BLOCK_ROWS = 600


def number_of_blocks(n_rows: int, block_rows: int = BLOCK_ROWS) -> int:
    """Return how many blocks of about `block_rows` rows there are."""
    return max(1, round(n_rows / block_rows))


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
    return [np.sort(order[hands == number]) for number in range(n_blocks)]
