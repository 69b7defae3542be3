"""Selection of a kernel width and a start for W, by how well nearest neighbours predict y.

The selection uses a sample of rows. It solves every width loosely from a few starts, from wide to
narrow. It rates a W by how well the nearest rows in X W predict the y of a row. A narrow kernel can
fit W to its own rows, so its gain over the kernel's own width counts only as far as held-out rows
confirm it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

import numpy as np
from scipy.spatial import cKDTree

from ism_dask._types import Array
from ism_dask.engines import Engine, Exact, Problem
from ism_dask.engines.operator import relative_residual
from ism_dask.kernels import Kernel
from ism_dask.observe.fit_events import fit_watcher
from ism_dask.rows.execution import side_by_side
from ism_dask.solvers.ism import spectral_start
from ism_dask.solvers.lbfgs import Precondition, lbfgs_ascent
from ism_dask.solvers.starts import SampledRows, candidate_starts

# Names of the ways to select.
SELECTIONS = ("heldout",)
# The most rows in the sample.
SELECTION_ROWS = 2000
# The fewest rows in the sample: fewer do not distinguish widths.
LEAST_ROWS = 20
# The most steps of a loose solution, and the residual that ends it earlier.
_STEPS, _RESIDUAL = 10, 0.02
# The number of starts at every width, beside the spectral one and the W of the previous width.
_STARTS = 2
# The number of neighbours whose mean predicts the y of a row.
_NEIGHBOURS = 10
# Each fold holds out a quarter of the rows. There are no more folds once this many rows are held
# out.
_FOLDS, _ENOUGH = 4, 500
# Limits in standard errors: the gain on held-out rows that confirms the gain of a width, ...
CONFIRMED = 0.5
# ... and the gain of a narrower width from which it is worth held-out fits.
_WORTH_A_TRY = 1.0
_SPECTRAL, _WIDER = "spectral", "the wider kernel's W"


@dataclass(frozen=True, eq=False)
class Trial:
    """A loose solution from one start at one width.

    Attributes
    ----------
    width : float
        As a multiple of the kernel's own.
    start : str
        The name of the start.
    objective : float
        J on the sample.
    W : (d, q) array
    losses : (m,) array
        The squared error with which its neighbours predict the y of each row.
    explained : float
        The share of y that the neighbours explain.
    gain : float
        The additional share of y compared with the best trial at the kernel's own width, as far as
        held-out rows confirm it.
    """

    width: float
    start: str
    objective: float
    W: Array = field(repr=False)
    losses: Array = field(repr=False)
    explained: float
    gain: float = 0.0


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """The data and the candidates of a selection.

    Attributes
    ----------
    evidence : SampledRows
    kernel : Kernel
        The kernel of the multiple 1, with all its parameters resolved.
    problem : callable
        Returns the problem of some rows (k,) of the sample with a kernel.
    q : int
    widths : tuple of float
        Multiples of the kernel's width, from wide to narrow; 1 is one of them.
    seed : int
        Deals the rows into folds.
    """

    evidence: SampledRows
    kernel: Kernel
    problem: Callable[[Array, Kernel], Problem]
    q: int
    widths: Sequence[float]
    seed: int

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """The folds, each with its held-out rows."""
        return tuple(Fold(self, *rows) for rows in _folds(self.evidence, self.seed))

    def engine(self, rows: Array, width: float) -> Engine:
        """Return the exact engine of some rows (k,), with the kernel widened by `width`."""
        return Exact().build(self.problem(rows, self.kernel.widened(width)), self.q)


def try_widths(choice: SelectionProblem) -> list[Trial]:
    """Return the trials of all widths and starts, the best first."""
    trials = _trials(choice)
    reference = max((each for each in trials if each.width == 1.0), key=_explained)
    corrections = _corrections(choice, trials, reference)
    gained = [
        replace(each, gain=each.explained - reference.explained + corrections[each.width])
        for each in trials
    ]
    return sorted(gained, key=lambda trial: -trial.gain)


def _explained(trial: Trial) -> float:
    return trial.explained


def _trials(choice: SelectionProblem) -> list[Trial]:
    """Return trials from a few starts at every width, from wide to narrow."""
    evidence = choice.evidence
    rows = np.arange(len(evidence.X))
    starts: dict[str, Array] = {}
    trials: list[Trial] = []
    for number, width in enumerate(choice.widths):
        fit_watcher().on_selection(number, len(choice.widths))
        engine = choice.engine(rows, width)
        if not starts:
            others = list(_ranked(evidence, candidate_starts(evidence, choice.q)).items())[:_STARTS]
            starts = {_SPECTRAL: spectral_start(engine, choice.q), **dict(others)}
        calls = [partial(_trial, engine, evidence, width, start, W) for start, W in starts.items()]
        at_width = side_by_side(calls, len(rows))
        trials += at_width
        starts[_WIDER] = max(at_width, key=lambda trial: trial.objective).W
    return trials


def _ranked(evidence: SampledRows, subspaces: dict[str, Array]) -> dict[str, Array]:
    """Return subspaces by name, ordered by how much of y the neighbours in them explain."""
    losses = {name: neighbour_losses(evidence, W).mean() for name, W in subspaces.items()}
    return {name: subspaces[name] for name in sorted(subspaces, key=lambda name: losses[name])}


def _trial(engine: Engine, evidence: SampledRows, width: float, start: str, W: Array) -> Trial:
    objective, W = _loose_solution(engine, W, evidence.precondition)
    losses = neighbour_losses(evidence, W)
    explained = (evidence.mean_loss - float(losses.mean())) / evidence.mean_square
    return Trial(width, start, objective, W, losses, explained)


def _loose_solution(engine: Engine, W: Array, precondition: Precondition) -> tuple[float, Array]:
    """Return J and W after a few gradient steps."""
    start = engine.product(W)
    best = start.objective, W
    steps = lbfgs_ascent(engine.product, W, start, precondition)
    for point, evaluation in islice(steps, _STEPS):
        best = evaluation.objective, point
        if relative_residual(point, evaluation.product) < _RESIDUAL:
            break
    return best


def useful_features(evidence: SampledRows, W: Array) -> int:
    """Return the number of leading features of W (d, q) with which neighbours explain most."""
    losses = [float(neighbour_losses(evidence, W[:, :k]).mean()) for k in range(1, W.shape[1] + 1)]
    return int(np.argmin(losses)) + 1


def neighbour_losses(evidence: SampledRows, W: Array) -> Array:
    """Return the squared errors (m,) with which the nearest other rows in X W predict each y."""
    Z = evidence.X @ W
    k = min(_NEIGHBOURS, len(Z) - 2)
    nearest = np.asarray(cKDTree(Z).query(Z, k + 1)[1])[:, 1:]
    return evidence.losses(slice(None), lambda values: values[nearest].mean(axis=1))


def held_out_losses(choice: SelectionProblem, trial: Trial) -> Array:
    """Return the squared errors (k,) with which W of the other rows predicts held-out rows."""
    return np.concatenate([fold.losses(trial) for fold in choice.folds])


def _corrections(
    choice: SelectionProblem, trials: list[Trial], reference: Trial
) -> dict[float, float]:
    """Return the correction of the gains over `reference` for each width.

    A correction brings the gain of the best trial to within a standard error of the gain on
    held-out rows, and to at most 0 if these gain less than half a standard error. Wider kernels
    always get held-out fits, because they fit less to their own rows than the reference does.
    Narrower ones get them if they gain more than a standard error; the others lose their gain.
    """
    best: dict[float, Trial] = {}
    for each in trials:
        best[each.width] = max(each, best.get(each.width, each), key=_explained)
    del best[1.0]
    corrections = {
        width: -max(each.explained - reference.explained, 0.0) for width, each in best.items()
    }
    corrections[1.0] = 0.0
    tried = [each for each in best.values() if _is_worth_a_try(each, reference)]
    if not tried:
        return corrections
    reference_losses = held_out_losses(choice, reference)
    for each in tried:
        gains = reference_losses - held_out_losses(choice, each)
        gains /= choice.evidence.mean_square
        own, held_out = each.explained - reference.explained, float(gains.mean())
        error = standard_error(gains)
        gain = float(np.clip(own, held_out - error, held_out + error))
        if held_out < CONFIRMED * error:
            gain = min(gain, 0.0)
        corrections[each.width] = gain - own
    return corrections


def _is_worth_a_try(trial: Trial, reference: Trial) -> bool:
    gains = reference.losses - trial.losses
    return trial.width > 1.0 or float(gains.mean()) > _WORTH_A_TRY * standard_error(gains)


def standard_error(numbers: Array) -> float:
    """Return the standard error of the mean of numbers (m,)."""
    return float(numbers.std()) / np.sqrt(len(numbers))


@dataclass(frozen=True, eq=False)
class Fold:
    """The training rows and the held-out rows of one fold."""

    choice: SelectionProblem
    train: Array
    test: Array
    _paths: dict[tuple[str, tuple[float, ...]], Array] = field(default_factory=dict)

    @cached_property
    def _training_rows(self) -> SampledRows:
        return self.choice.evidence.part(self.train)

    @cached_property
    def _starts(self) -> dict[str, Array]:
        """The starts by name, first the one whose neighbours explain most."""
        q = self.choice.q
        spectral = spectral_start(self.choice.engine(self.train, 1.0), q)
        return _ranked(
            self._training_rows, {_SPECTRAL: spectral, **candidate_starts(self._training_rows, q)}
        )

    def losses(self, trial: Trial) -> Array:
        """Return the losses of the held-out rows, with W fitted to the training rows."""
        predicted = partial(self.nearest_mean, self.W_as_in(trial))
        return self.choice.evidence.losses(self.test, predicted)

    def nearest_mean(self, W: Array, values: Array) -> Array:
        """Return the means of values (m, r) over the training rows nearest to held-out ones."""
        Z = self.choice.evidence.X @ W
        k = min(_NEIGHBOURS, len(self.train))
        nearest = np.asarray(cKDTree(Z[self.train]).query(Z[self.test], k)[1])
        return np.asarray(values[self.train][nearest].mean(axis=1))

    def W_as_in(self, trial: Trial) -> Array:
        """Return W fitted to the training rows as in `trial`.

        A good start for all rows may lead elsewhere with fewer. So the start whose neighbours
        explain most is tried, too.
        """
        paths: set[tuple[str, tuple[float, ...]]] = {(next(iter(self._starts)), (trial.width,))}
        if trial.start == _WIDER:
            widths = [width for width in self.choice.widths if width >= trial.width]
            paths.add((_SPECTRAL, tuple(widths)))
        else:
            paths.add((trial.start, (trial.width,)))
        ends = [self._fitted(*path) for path in sorted(paths)]
        return min(ends, key=lambda W: float(neighbour_losses(self._training_rows, W).mean()))

    def _fitted(self, start: str, widths: tuple[float, ...]) -> Array:
        """Return W after loose solutions from a start, with kernels of these widths in turn."""
        if not widths:
            return self._starts[start]
        path = start, widths
        if path not in self._paths:
            engine = self.choice.engine(self.train, widths[-1])
            W = self._fitted(start, widths[:-1])
            self._paths[path] = _loose_solution(engine, W, self._training_rows.precondition)[1]
        return self._paths[path]


def _folds(evidence: SampledRows, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield training rows and held-out rows, with rows of all slices in both."""
    m = len(evidence.X)
    shuffled = np.random.default_rng([seed, m]).permutation(m)
    # Number the slices in the order in which they appear: the names of classes must not matter.
    _, firsts, slices = np.unique(evidence.slices[shuffled], return_index=True, return_inverse=True)
    dealt = shuffled[np.argsort(firsts[slices], kind="stable")]
    fold = np.empty(m, dtype=int)
    fold[dealt] = np.arange(m) % _FOLDS
    for number in range(min(_FOLDS, -(-_FOLDS * _ENOUGH // m))):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)
