"""Result of the flow that places the rows of a data set in a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flows.results.base import OPTIONAL, RunResult


@dataclass(frozen=True, kw_only=True)
class UnfoldResult(RunResult):
    """The result of `unfold`: coordinates of all rows.

    Attributes
    ----------
    dataset, split, data_hash : str
    label : str
        The label that the picture depends on; empty if it depends on none.
    rows, columns, n_components : int
    eigenvalues : tuple of float
        Those of K, in decreasing order: the variances along the axes, times the rows.
    distance_error : float
        Of the distances of neighbours, as a share of these distances.
    hsic : float
        Correlation of the kernels of coordinates and label, from 0 to 1.
    same_class : float or None
        Share of the 10 nearest rows in the picture that have the class of a row; None without
        classes.
    objective, program_objective, duality_gap, extension_error : float
        As in `ism_dask.ColoredMVU`.
    n_neighbors : int
        Number of neighbours of a row, by which new rows are placed.
    exact_neighbors : bool
        Whether they are exact.
    largest_column : str or None
        The column with the largest variance, if columns have their own units.
    largest_share : float or None
        Its share of the variance of all columns.
    edges : int
        Number of pairs of neighbours.
    part_sizes : tuple of int
        Sizes of the parts of the graph of neighbours before they were joined.
    used_axes : int
        Number of axes of the picture in which rows differ.
    iterations : int
        Steps of the refinement.
    status : str
    converged : bool
    seconds : float
    class_names : tuple of str or None
        The names of the classes, in the order of their codes.
    settings : Mapping
        The settings of the run in JSON.
    """

    command: ClassVar[str] = "unfold"
    dataset: str
    split: str = ""
    label: str = ""
    rows: int
    columns: int
    n_components: int
    data_hash: str = ""
    eigenvalues: tuple[float, ...]
    distance_error: float
    hsic: float
    same_class: float | None
    objective: float
    program_objective: float
    duality_gap: float
    extension_error: float
    n_neighbors: int
    exact_neighbors: bool
    largest_column: str | None = field(default=None, metadata=OPTIONAL)
    largest_share: float | None = field(default=None, metadata=OPTIONAL)
    edges: int
    part_sizes: tuple[int, ...]
    used_axes: int
    iterations: int
    status: str
    converged: bool
    seconds: float
    class_names: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def share_of_axes(self) -> float:
        """The share of the variance along the axes of the picture."""
        return sum(self.eigenvalues[: self.n_components]) / sum(self.eigenvalues)
