"""Which width and which start: those whose neighbours explain most of y, as held-out rows confirm.

The choice is made on a sample of rows. Every width is solved loosely from a few starts, from wide
to narrow. A W is worth what the nearest rows in X W tell of a row's y. A narrow kernel can fit W
to its own rows: so what it gains over the first width counts only as far as held-out rows bear
it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np
from scipy.spatial import cKDTree

from ism_dask.eigen import leading
from ism_dask.engines import Engine, Problem, candidates
from ism_dask.kernels import Kernel
from ism_dask.rivals.quasi_newton import climb_by_curvature
from ism_dask.solver import finite, relative_residual
from ism_dask.starts import Evidence, starts
from ism_dask.typing import Array

# Ways to choose.
SELECTIONS = ("heldout",)
# Rows that the choice is made on.
SELECTION_ROWS = 2000
# Fewer rows tell nothing of widths.
LEAST_ROWS = 20
# Steps of a loose solution, and the residual that ends it earlier.
_STEPS, _RESIDUAL = 10, 0.02
# Starts that are solved at every width, beside the W of the width before.
_STARTS = 2
# Neighbours whose mean explains a row.
_NEIGHBOURS = 10
# Held-out rows: a fold is a quarter of them, and so many rows are enough.
_FOLDS, _ENOUGH = 4, 500
# A gain counts up to what held-out rows show plus so many of its standard errors.
_ERRORS = 1.0
# Standard errors by which another feature has to explain more to be taken by itself.
_CLEAR = 2.0
_LEAST_GAIN = 1.0
_SPECTRAL, _WIDER = "spectral", "the wider kernel's W"


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
    losses : (m,) array
        What the neighbours of each row leave unexplained.
    """

    width: float
    start: str
    objective: float
    explained: float
    gain: float
    W: Array = field(repr=False)
    losses: Array = field(repr=False)


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
        Multiples of the kernel's width, from wide to narrow, 1 among them.
    """

    evidence: Evidence
    kernel: Kernel
    problem: Callable[[Array, Kernel], Problem]
    q: int
    widths: Sequence[float]


def select(choice: Choice, seed: int) -> list[Trial]:
    """Return what was tried, the best first."""
    evidence = choice.evidence
    solved = _ladder(choice)
    reference = min((each for each in solved if each.width == 1.0), key=_loss)
    gains = {each: reference.losses - each.losses for each in solved}
    corrections = _corrections(choice, gains, reference, seed)
    size = float(np.einsum("ij,ij->", evidence.U, evidence.U)) / len(evidence.U)
    trials = [
        Trial(
            each.width,
            each.start,
            each.objective,
            explained=1.0 - float(each.losses.mean()) / size,
            gain=(float(gain.mean()) + corrections[each.width]) / size,
            W=each.W,
            losses=each.losses,
        )
        for each, gain in gains.items()
    ]
    return sorted(trials, key=lambda trial: -trial.gain)


def _objective(solved: _Solved) -> float:
    return solved.objective


def _loss(solved: _Solved) -> float:
    return float(solved.losses.mean())


def _ladder(choice: Choice) -> list[_Solved]:
    """Return loose solutions from a few starts at every width, from wide to narrow."""
    rows = np.arange(len(choice.evidence.X))
    begun: dict[str, Array] = {}
    solved: list[_Solved] = []
    for width in choice.widths:
        engine = _engine(choice.problem(rows, choice.kernel.widened(width)), choice.q)
        begun = begun or _begun(engine, choice.evidence, choice.q)
        found = [_solved(engine, choice.evidence, width, start, W) for start, W in begun.items()]
        solved += found
        begun[_WIDER] = max(found, key=_objective).W
    return solved


def _engine(problem: Problem, q: int) -> Engine:
    return candidates("exact", problem, q)[0]


def _begun(engine: Engine, evidence: Evidence, q: int) -> dict[str, Array]:
    """Return the spectral start, and those of the others whose neighbours explain most."""
    others = starts(evidence, q)
    losses = {name: float(neighbour_losses(evidence, W).mean()) for name, W in others.items()}
    best = sorted(others, key=lambda name: losses[name])[:_STARTS]
    return {_SPECTRAL: _spectral(engine, q), **{name: others[name] for name in best}}


def _spectral(engine: Engine, q: int) -> Array:
    return leading(finite(engine.phi0()), q).vectors


def _solved(engine: Engine, evidence: Evidence, width: float, start: str, W: Array) -> _Solved:
    objective, W = _climbed(engine, W)
    return _Solved(width, start, objective, W, neighbour_losses(evidence, W))


def _climbed(engine: Engine, W: Array) -> tuple[float, Array]:
    """Return J and W after a few steps along the slope."""
    begun = engine.product(W)
    best = begun.objective, W
    for point, evaluation in islice(climb_by_curvature(engine.product, W, begun), _STEPS):
        best = evaluation.objective, point
        if relative_residual(point, evaluation.matrix) < _RESIDUAL:
            break
    return best


def adds(more: Trial, fewer: Trial) -> bool:
    """Return whether another feature lets neighbours explain more, beyond two standard errors."""
    gain = fewer.losses - more.losses
    return float(gain.mean()) > _CLEAR * _standard_error(gain)


def useful_features(evidence: Evidence, W: Array) -> int:
    """Return how many of the first features of W (d, q) explain as much as all of them."""
    losses = [float(neighbour_losses(evidence, W[:, :k]).mean()) for k in range(1, W.shape[1] + 1)]
    return int(np.argmin(losses)) + 1


def neighbour_losses(evidence: Evidence, W: Array) -> Array:
    """Return the squared error (m,) of y of each row as its nearest other rows in X W tell it."""
    Z = evidence.X @ W
    k = min(_NEIGHBOURS, len(Z) - 2)
    nearest = np.asarray(cKDTree(Z).query(Z, k + 1)[1])[:, 1:]
    return _squares(evidence.U - evidence.U[nearest].mean(axis=1))


def _held_out_losses(evidence: Evidence, W: Array, train: Array, test: Array) -> Array:
    """Return the squared error of y of the rows `test`, as the nearest of `train` tell it."""
    Z = evidence.X @ W
    nearest = np.asarray(cKDTree(Z[train]).query(Z[test], min(_NEIGHBOURS, len(train)))[1])
    return _squares(evidence.U[test] - evidence.U[train][nearest].mean(axis=1))


def _squares(errors: Array) -> Array:
    return np.einsum("ij,ij->i", errors, errors)


def _corrections(
    choice: Choice, gains: dict[_Solved, Array], reference: _Solved, seed: int
) -> dict[float, float]:
    """Return for each width what is to be added to its gains, as held-out rows tell.

    The gain of its best trial is brought to within a standard error of what held-out rows gain.
    Wider kernels are always held out, since they fit less to their own rows than the reference
    does; narrower ones if they gain more than a standard error. Of the others no gain is left.
    """
    best: dict[float, _Solved] = {}
    for each in gains:
        best[each.width] = min(each, best.get(each.width, each), key=_loss)
    del best[1.0]
    corrections = {width: -max(float(gains[each].mean()), 0.0) for width, each in best.items()}
    corrections[1.0] = 0.0
    tried = {width: each for width, each in best.items() if _worth_a_try(width, gains[each])}
    if not tried:
        return corrections
    held_out: dict[_Solved, list[Array]] = {each: [] for each in (reference, *tried.values())}
    for train, test in _folds(choice.evidence, seed):
        fold = _Fold(choice, train, test)
        for each, losses in held_out.items():
            losses.append(fold.losses(each))
    losses_of = {each: np.concatenate(losses) for each, losses in held_out.items()}
    for width, each in tried.items():
        gain, own = losses_of[reference] - losses_of[each], float(gains[each].mean())
        middle, error = float(gain.mean()), _ERRORS * _standard_error(gain)
        corrections[width] = float(np.clip(own, middle - error, middle + error)) - own
    return corrections


def _worth_a_try(width: float, gain: Array) -> bool:
    return width > 1.0 or float(gain.mean()) > _LEAST_GAIN * _standard_error(gain)


def _standard_error(numbers: Array) -> float:
    return float(numbers.std()) / np.sqrt(len(numbers))


@dataclass(frozen=True, eq=False)
class _Fold:
    """Rows to learn from, and held-out rows."""

    choice: Choice
    train: Array
    test: Array

    @cached_property
    def _evidence(self) -> Evidence:
        return self.choice.evidence.part(self.train)

    @cached_property
    def _starts(self) -> dict[str, Array]:
        engine = self._engine(1.0)
        return {
            _SPECTRAL: _spectral(engine, self.choice.q),
            **starts(self._evidence, self.choice.q),
        }

    @cached_property
    def _best_start(self) -> str:
        """The start whose neighbours explain most."""
        losses = {name: neighbour_losses(self._evidence, W) for name, W in self._starts.items()}
        return min(losses, key=lambda name: float(losses[name].mean()))

    def _engine(self, width: float) -> Engine:
        kernel = self.choice.kernel.widened(width)
        return _engine(self.choice.problem(self.train, kernel), self.choice.q)

    def losses(self, solved: _Solved) -> Array:
        """Return the losses of the held-out rows, W being learned again as `solved` was.

        A start that led on with all rows may lead elsewhere with fewer: the one whose neighbours
        explain most is tried, too.
        """
        widths = [width for width in self.choice.widths if width >= solved.width]
        paths = {(_SPECTRAL, tuple(widths))}
        if solved.start != _WIDER:
            paths = {(solved.start, (solved.width,))}
        paths.add((self._best_start, (solved.width,)))
        found = [self._followed(*path) for path in sorted(paths)]
        best = min(found, key=lambda W: float(neighbour_losses(self._evidence, W).mean()))
        return _held_out_losses(self.choice.evidence, best, self.train, self.test)

    def _followed(self, start: str, widths: Sequence[float]) -> Array:
        W = self._starts[start]
        for width in widths:
            W = _climbed(self._engine(width), W)[1]
        return W


def _folds(evidence: Evidence, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield rows to learn from and held-out rows, with all slices in both."""
    m = len(evidence.X)
    shuffled = np.random.default_rng([seed, m]).permutation(m)
    dealt = shuffled[np.argsort(evidence.slices[shuffled], kind="stable")]
    fold = np.empty(m, dtype=int)
    fold[dealt] = np.arange(m) % _FOLDS
    for number in range(min(_FOLDS, -(-_FOLDS * _ENOUGH // m))):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)
