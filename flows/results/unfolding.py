"""Result of the flow that places the rows of a data set in a picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from flows.results.base import OPTIONAL
from flows.results.runs import DataResult


@dataclass(frozen=True, kw_only=True)
class UnfoldResult(DataResult):
    """The result of `unfold`: coordinates of all rows; see `ism_dask.ColoredMVU`."""

    command: ClassVar[str] = "unfold"
    label: str = ""  # empty if the picture depends on none
    n_components: int
    eigenvalues: tuple[float, ...]  # of K, in decreasing order: variances along axes, times rows
    distance_error: float  # of the distances of neighbours, as a share of these distances
    hsic: float  # correlation of the kernels of coordinates and label, from 0 to 1
    # Share of the 10 nearest rows in the picture that have the class of a row; None without
    # classes.
    same_class: float | None
    objective: float
    program_objective: float
    duality_gap: float
    extension_error: float
    n_neighbors: int  # of a row, by which new rows are placed
    exact_neighbors: bool
    # The column with the largest variance, if columns have their own units, and its share of the
    # variance of all.
    largest_column: str | None = field(default=None, metadata=OPTIONAL)
    largest_share: float | None = field(default=None, metadata=OPTIONAL)
    edges: int  # pairs of neighbours
    part_sizes: tuple[int, ...]  # of the graph of neighbours, before its parts were joined
    used_axes: int  # of the picture, in which rows differ
    iterations: int  # of the refinement
    status: str
    converged: bool
    seconds: float
    class_names: tuple[str, ...] | None = None  # in the order of their codes

    @property
    def share_of_axes(self) -> float:
        """The share of the variance along the axes of the picture."""
        return sum(self.eigenvalues[: self.n_components]) / sum(self.eigenvalues)
