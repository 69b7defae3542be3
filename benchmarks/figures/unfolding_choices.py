"""Choices within colored MVU: how new rows are placed, and where the refinement computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_friedman1,
    make_s_curve,
    make_swiss_roll,
)

from benchmarks.clusters import local_cluster
from benchmarks.measure import Figure, alternating, median_seconds, say
from benchmarks.parallel import in_processes
from benchmarks.rows import Array
from ism_dask import ColoredMVU
from ism_dask.estimators.placement import Placement, RowUnits
from ism_dask.rows.execution import as_tasks, computed, named_task, sent_once_per_worker
from ism_dask.unfolding.ascent import CoordinateObjective
from ism_dask.unfolding.laplacian import smooth_basis
from ism_dask.unfolding.neighbour_graph import NeighbourGraph, neighbour_graph
from ism_dask.unfolding.neighbour_search import ExactSearch
from ism_dask.unfolding.program import Scales
from ism_dask.unfolding.side_information import FactorKernel

_NEIGHBOURS, _EIGENVECTORS = 10, 20
_STEPS = 20

Rows = tuple[Array, Array]


def unfolded_places() -> Figure:
    """Place rows of a fit without themselves: by weights, with corrections, by Nystrom's formula.

    The error is the root mean square distance from their coordinates, as a share of the deviation
    of the coordinates. `transform` takes the better one of the first two. Nystrom's formula
    extends each eigenvector of the graph, and coordinates by their regression on the eigenvectors.
    It puts no copy of a row of the fit in its place.
    """
    cells = [(name, refine) for name in _DATA for refine in (True, False)]
    lines = list(in_processes(_errors, cells))
    return {
        "table": lines,
        "must": "`transform` errs at most 1.1 times as much as Nystrom's formula on every line",
        "met": all(line["transform"] <= 1.1 * line["nystrom"] for line in lines),
    }


def unfolded_steps() -> Figure:
    """Sum the objective of the refinement over edges: here, and in shards on two Dask workers."""
    with local_cluster(2):
        lines = [_step(rows) for rows in (60_000, 600_000)]
    return {
        "table": lines,
        "must": "sums over edges here are faster than on two workers",
        "met": all(line["here ms"] < line["workers ms"] for line in lines),
    }


def _errors(name: str, refine: bool) -> Figure:
    """Return the errors of each formula on a data set."""
    X, y = _DATA[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iris falls into two parts
        model = ColoredMVU(refine=refine, target=_target(y)).fit(X, y)
        rows = np.unique((X - model.mean_) / model.scale_, axis=0)
        search = ExactSearch.among(rows, _NEIGHBOURS)
        graph = neighbour_graph(rows, search.of_own_rows())
    places = model.transform(rows * model.scale_ + model.mean_)
    spread = float(np.linalg.norm(places - places.mean(axis=0)))
    extended = _nystrom(graph, places)
    units = RowUnits(np.zeros(rows.shape[1]), np.ones(rows.shape[1]), 0)
    placement = Placement(units, search, rows, places)
    weighted = placement.by_both_formulas(rows, graph.neighbours)[0]
    best, error = placement.fitted(graph.neighbours)
    say(f"{name}: {error:.3f}")
    return {
        "data": name,
        "coordinates": "refined" if refine else "smooth",
        "weights": float(np.linalg.norm(weighted - places)) / spread,
        "transform": error,
        "corrected": best.corrections is not None,
        "nystrom": float(np.linalg.norm(extended - places)) / spread,
    }


def _nystrom(graph: NeighbourGraph, places: Array) -> Array:
    """Return where Nystrom's formula puts the nodes (n, q) of a graph from their neighbours."""
    basis = smooth_basis(graph, _EIGENVECTORS)
    means = places.mean(axis=0)
    factors = 1.0 / (_NEIGHBOURS - basis.values)
    extended = basis.vectors[graph.neighbours].sum(axis=1) * factors
    return extended @ (basis.vectors.T @ places) + means


def _target(y: Array) -> str:
    return "classes" if len(np.unique(y)) <= 20 else "gaussian"


@dataclass(frozen=True, eq=False)
class _Step:
    """One sum of the objective over all edges, in shards.

    Attributes
    ----------
    shards : list
        Objectives of a part of the edges each, or tasks that hold them.
    Y : (n, q) array
    """

    shards: list[Any]
    Y: Array

    def __call__(self) -> Array:
        """Return the gradient (n, q)."""
        task, Y = named_task("edges", CoordinateObjective.at), self.Y
        sums = computed([task(shard, sent_once_per_worker(Y)) for shard in self.shards])
        return sum(each.gradient for each in sums)


def _step(rows: int) -> Figure:
    """Return the milliseconds of a sum over the edges of a graph of so many rows."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(rows, 3)), rng.normal(size=(rows, 2))
    graph = neighbour_graph(X, ExactSearch.among(X, _NEIGHBOURS).of_own_rows())
    whole = CoordinateObjective(graph, FactorKernel(np.zeros((rows, 1))), Scales(1.0, 1.0))
    halves = [_part(whole, start, 2) for start in range(2)]
    calls: dict[str, Callable[[], Array]] = {
        "here": lambda: whole.at(Y).gradient,
        "workers": _Step(as_tasks(halves), Y),
    }
    for call in calls.values():  # first calls wait for shards to arrive
        np.testing.assert_allclose(call(), whole.at(Y).gradient, rtol=1e-6, atol=1e-6)
    runs = alternating(calls, _STEPS)
    here, workers = (1e3 * median_seconds(runs[name]) for name in calls)
    return {"rows": rows, "edges": graph.n_edges, "here ms": here, "workers ms": workers}


def _part(whole: CoordinateObjective, start: int, parts: int) -> CoordinateObjective:
    """Return the objective of one of `parts` shards of the edges."""
    graph, size = whole.graph, -(-whole.graph.n_edges // parts)
    run = slice(start * size, (start + 1) * size)
    edges = {name: getattr(graph, name)[run] for name in ("heads", "tails", "squared")}
    bare = replace(graph, neighbours=graph.neighbours[:0], **edges)
    return replace(whole, graph=bare)


_DATA: dict[str, Callable[[], Rows]] = {
    "wine": partial(load_wine, return_X_y=True),
    "cancer": partial(load_breast_cancer, return_X_y=True),
    "iris": partial(load_iris, return_X_y=True),
    "digits": partial(load_digits, return_X_y=True),
    "diabetes": partial(load_diabetes, return_X_y=True),
    "friedman": partial(make_friedman1, 500, random_state=5),
    "roll": partial(make_swiss_roll, 1500, noise=0.3, random_state=3),
    "s curve": partial(make_s_curve, 800, random_state=2),
}
