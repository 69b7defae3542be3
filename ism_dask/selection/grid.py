"""Search of a grid of widths and ridges by steps to better neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar

_Cell = TypeVar("_Cell")


def climbed_grid(
    cells: Sequence[Sequence[_Cell]],
    values: Callable[[list[_Cell]], list[float]],
    first: tuple[int, int],
) -> tuple[_Cell, float]:
    """Return the cell of a grid that is better than its eight neighbours, and its value.

    Parameters
    ----------
    cells : sequence of sequences
        The rows of the grid.
    values : callable
        Returns the values of some cells; the larger is better.
    first : tuple of int
        The row and the column of the first cell.
    """
    known: dict[tuple[int, int], float] = {}
    here = first
    while True:
        near = [(here[0] + i, here[1] + j) for i, j in product((0, -1, 1), repeat=2)]
        near = [(i, j) for i, j in near if 0 <= i < len(cells) and 0 <= j < len(cells[0])]
        new = [each for each in near if each not in known]
        known.update(zip(new, values([cells[i][j] for i, j in new]), strict=True))
        best = max(near, key=known.__getitem__)
        if best == here:
            return cells[here[0]][here[1]], known[here]
        here = best
