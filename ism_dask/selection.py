"""Which width and which start: those whose neighbours explain most of y, as held-out rows confirm.

The choice is made on a sample of rows. Every width is solved loosely from a few starts, from wide
to narrow. A W is worth what the nearest rows in X W tell of a row's y. A narrow kernel can fit W
to its own rows: so what it gains over the first width counts only as far as held-out rows bear
it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from scipy.spatial import cKDTree

from ism_dask.eigen import leading
from ism_dask.engines import Engine, Problem, candidates
from ism_dask.kernels import Kernel
from ism_dask.rivals.ascent import ascend
from ism_dask.solver import finite, relative_residual
from ism_dask.starts import Evidence, starts
from ism_dask.typing import Array

# Rows that the choice is made on.
SELECTION_ROWS = 2000
# Fewer rows tell nothing of widths.
LEAST_ROWS = 20
# Widths, as multiples of the one that the kernel has by itself, from wide to narrow.
WIDTHS = (2.0, 1.0, 0.5, 0.25)
# Steps of a loose solution, and the residual that ends it earlier.
_STEPS, _RESIDUAL = 15, 0.02
# Starts that are solved at every width, beside the W of the width before.
_STARTS = 2
# Neighbours whose mean explains a row.
_NEIGHBOURS = 10
# Held-out rows: a fold is a quarter of them, and so many rows are enough.
_FOLDS, _ENOUGH = 4, 500
# A gain counts up to what held-out rows show plus so many of its standard errors.
_ERRORS = 1.0


@dataclass(frozen=True, eq=False)
class Trial:
    """A W from one start at one width.

    Attributes
    ----------
    width : float
        As a multiple of the kernel's own.
    start : str
    objective : float
        J on the choice.
    explained : float
        The share of y that the neighbours of each row explain, the row left out.
    gain : float
        By how much that is more than at the kernel's own width, as far as held-out rows confirm.
    W : (d, q) array
    """

    width: float
    start: str
    objective: float
    explained: float
    gain: float = 0.0
    W: Array = field(default_factory=lambda: np.empty((0, 0)), repr=False)


@dataclass(frozen=True, eq=False)
class _Solved:
    """A loose solution, with what its neighbours leave unexplained of each row."""

    width: float
    start: str
    objective: float
    W: Array
    losses: Array


@dataclass(frozen=True, eq=False)
class Choice:
    """What a choice is made of.

    Attributes
    ----------
    evidence : Evidence
    kernel : Kernel
        With nothing left to resolve: the one of multiple 1.
    problem : callable
        Returns the problem of some rows (k,) of the evidence with a kernel.
    q : int
    widths : tuple of float
    """

    evidence: Evidence
    kernel: Kernel
    problem: Callable[[Array, Kernel], Problem]
    q: int
    widths: Sequence[float] = WIDTHS


def select(choice: Choice, seed: int) -> list[Trial]:
    """Return what was tried, the best first."""
    every = np.arange(len(choice.evidence.X))
    solved = _ladder(choice, every)
    reference = max((each for each in solved if each.width == 1.0), key=_objective)
    size = float((choice.evidence.U**2).sum()) / len(every)
    gains = {each: reference.losses - each.losses for each in solved}
    limits = _confirmed(choice, solved, reference, seed)
    trials = [
        Trial(
            each.width,
            each.start,
            each.objective,
            explained=1.0 - float(each.losses.mean()) / size,
            gain=min(float(gain.mean()), limits[each.width]) / size,
            W=each.W,
        )
        for each, gain in gains.items()
    ]
    return sorted(trials, key=lambda trial: -trial.gain)


def _objective(solved: _Solved) -> float:
    return solved.objective


def _ladder(choice: Choice, rows: Array, widths: Sequence[float] | None = None) -> list[_Solved]:
    """Return loose solutions of some rows at every width, from wide to narrow."""
    evidence = choice.evidence.part(rows)
    begun: dict[str, Array] = {}
    solved: list[_Solved] = []
    for width in choice.widths if widths is None else widths:
        engine = _engine(choice.problem(rows, choice.kernel.widened(width)), choice.q)
        if not begun:
            begun = _begun(engine, evidence, choice.q)
        for start, W in begun.items():
            solved.append(_solved(engine, evidence, width, start, W))
        last = [each for each in solved if each.width == width]
        begun["wider"] = max(last, key=_objective).W
    return solved


def _engine(problem: Problem, q: int) -> Engine:
    return candidates("exact", problem, q)[0]


def _begun(engine: Engine, evidence: Evidence, q: int) -> dict[str, Array]:
    """Return the starts whose neighbours explain most, the spectral one always among them."""
    spectral = leading(finite(engine.phi0()), q).vectors
    others = starts(evidence, q)
    losses = {name: float(neighbour_losses(evidence, W).mean()) for name, W in others.items()}
    best = sorted(others, key=lambda name: losses[name])[:_STARTS]
    return {"spectral": spectral, **{name: others[name] for name in best}}


def _solved(engine: Engine, evidence: Evidence, width: float, start: str, W: Array) -> _Solved:
    objective, W = _climbed(engine, W)
    return _Solved(width, start, objective, W, neighbour_losses(evidence, W))


def _climbed(engine: Engine, W: Array) -> tuple[float, Array]:
    """Return J and W after a few steps along the slope."""
    now = engine.product(W)
    best = now.objective, W
    for W, now in islice(ascend(engine.product, lambda each: each.matrix, W, now), _STEPS):
        if now.objective > best[0]:
            best = now.objective, W
        if relative_residual(W, now.matrix) < _RESIDUAL:
            break
    return best


def neighbour_losses(evidence: Evidence, W: Array) -> Array:
    """Return the squared error (m,) of y of each row as its nearest other rows in X W tell it."""
    Z = evidence.X @ W
    k = min(_NEIGHBOURS, len(Z) - 2)
    nearest = cKDTree(Z).query(Z, k + 1)[1][:, 1:]
    return _squares(evidence.U - evidence.U[nearest].mean(axis=1))


def _held_out_losses(evidence: Evidence, W: Array, train: Array, test: Array) -> Array:
    """Return the squared error of y of the rows `test`, as the nearest of `train` tell it."""
    Z = evidence.X @ W
    nearest = cKDTree(Z[train]).query(Z[test], min(_NEIGHBOURS, len(train)))[1]
    return _squares(evidence.U[test] - evidence.U[train][nearest].mean(axis=1))


def _squares(errors: Array) -> Array:
    return np.einsum("ij,ij->i", errors, errors)


def _confirmed(
    choice: Choice, solved: list[_Solved], reference: _Solved, seed: int
) -> dict[float, float]:
    """Return for each width how much less its held-out losses are, and a standard error on top.

    Widths that do not gain anything are not solved again.
    """
    gaining = {each.width for each in solved if each.losses.mean() < reference.losses.mean()}
    widths = [width for width in choice.widths if width in gaining or width == 1.0]
    limits = dict.fromkeys(choice.widths, 0.0)
    if widths == [1.0]:
        limits[1.0] = np.inf
        return limits
    losses: dict[float, list[Array]] = {width: [] for width in widths}
    for train, test in _folds(choice.evidence, seed):
        again = _ladder(choice, train, widths)
        for width in widths:
            W = max((each for each in again if each.width == width), key=_objective).W
            losses[width].append(_held_out_losses(choice.evidence, W, train, test))
    first = np.concatenate(losses[1.0])
    for width in widths:
        gain = first - np.concatenate(losses[width])
        limits[width] = float(gain.mean() + _ERRORS * gain.std() / np.sqrt(len(gain)))
    limits[1.0] = np.inf
    return limits


def _folds(evidence: Evidence, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield rows to learn from and held-out rows, with all slices in both."""
    m = len(evidence.X)
    shuffled = np.random.default_rng([seed, m]).permutation(m)
    dealt = shuffled[np.argsort(evidence.slices[shuffled], kind="stable")]
    fold = np.empty(m, dtype=int)
    fold[dealt] = np.arange(m) % _FOLDS
    for number in range(min(_FOLDS, -(-_FOLDS * _ENOUGH // m))):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)
