"""The start of a supervised fit: the number of new features, the kernel width and the first W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.estimators.preparation import FitRows
from ism_dask.gamma.base import Dependence
from ism_dask.kernels import Kernel
from ism_dask.records.iteration import Solution, State
from ism_dask.rows.execution import on_this_machine
from ism_dask.solvers.dimension_choice import (
    DimensionTrial,
    RatedDimension,
    path_advice,
    rate_dimension,
)
from ism_dask.solvers.ism import state_at
from ism_dask.solvers.lbfgs import Precondition
from ism_dask.solvers.width_selection import (
    SelectionProblem,
    Trial,
    try_widths,
    useful_features,
)
from ism_dask.status import components_advice

# Maximum number of new features if the data decide the number.
MOST_FEATURES = 6


def tries_dimensions(n_classes: int | None, kernel: Kernel, selection: str | None) -> bool:
    """Return whether "auto" tries numbers of new features, for y of classes or of numbers (None).

    Without a selection, or if the width of the kernel is given, there is nothing to try them with.
    More than seven classes have too many numbers to try.
    """
    few = n_classes is None or n_classes - 1 <= MOST_FEATURES
    return few and selection is not None and bool(kernel.multiples)


@dataclass(frozen=True, eq=False)
class FitStart:
    """The start of a fit.

    Attributes
    ----------
    fit_rows : FitRows
        The rows and the kernel of the fit.
    q : int
        Number of new features.
    state : State or None
        The state from which the iteration starts; None is the spectral start.
    selection_problem : SelectionProblem or None
        The problem that a selection solved, if there was one.
    trials : tuple of Trial
        The trials of the selection, best first.
    dimension_path : tuple of DimensionTrial
        The numbers of features that were tried, from 1 up.
    """

    fit_rows: FitRows
    q: int
    state: State | None = None
    selection_problem: SelectionProblem | None = None
    trials: tuple[Trial, ...] = ()
    dimension_path: tuple[DimensionTrial, ...] = ()

    @property
    def can_select(self) -> bool:
        """Whether there are enough rows to choose by, and more varying directions than features."""
        return self.fit_rows.is_selectable and self.q < self.fit_rows.space.n_varying

    @property
    def precondition(self) -> Precondition | None:
        """The preconditioner, which lengthens gradient steps from a selected W; else None."""
        problem = self.selection_problem
        return None if problem is None else problem.evidence.precondition

    def continued(self, W: Array, width: float, dependence: Dependence) -> FitStart:
        """Return the start at the W (r, q) of an earlier fit, with the multiple of the width."""
        fit_rows = self.fit_rows.with_kernel(self.fit_rows.kernel.widened(width))
        problem = None
        if self.can_select:
            # It has the preconditioner for steps to the nearest maximum.
            problem = fit_rows.selection_problem(dependence, self.q, (1.0,))
        return replace(self, fit_rows=fit_rows, state=state_at(W), selection_problem=problem)

    def selected(self, dependence: Dependence, multiples: Sequence[float]) -> FitStart:
        """Return the start with the width and the W that a selection prefers."""
        return self.with_selection(self.fit_rows.selection_problem(dependence, self.q, multiples))

    def grown(self, dependence: Dependence, multiples: Sequence[float], most: int) -> FitStart:
        """Return the start with the number of features that explain y, up to `most`.

        It begins with the number up to classes - 1 that explains most of held-out rows, or with 1
        for numbers, and adds features as long as each one clearly explains more.
        """
        usual = 1 if dependence.classes is None else self.q
        growth = _Growth(self, dependence, multiples)
        for q in range(1, usual + 1):
            growth.try_dimension(q)
        best = growth.best_held_out
        while best == growth.last < min(most, MOST_FEATURES):
            if growth.try_dimension(best + 1).explains_more:
                best += 1
        return growth.start(best)

    def with_selection(self, choice: SelectionProblem) -> FitStart:
        """Return the start with the best trial of the selection problem `choice`."""
        with on_this_machine():
            trials = tuple(try_widths(choice))
        best = trials[0]
        return replace(
            self,
            fit_rows=self.fit_rows.with_kernel(self.fit_rows.kernel.widened(best.width)),
            state=state_at(best.W),
            selection_problem=choice,
            trials=trials,
        )

    def with_features(self, q: int) -> FitStart:
        """Return the start without a selection, with another number of features."""
        kernel = self.fit_rows.kernel.widened(float(np.sqrt(q / self.q)))
        return replace(self, q=q, fit_rows=self.fit_rows.with_kernel(kernel))

    def on_sample(self, dependence: Dependence) -> SelectionProblem:
        """Return the problem of the fit on a sample of up to 2,000 rows."""
        choice = self.selection_problem
        d = self.fit_rows.space.n_varying
        # Fits to sparse rows may end in another subspace than that of the selection.
        if choice is None or choice.evidence.X.shape[1] != d:
            return self.fit_rows.selection_problem(dependence, self.q, (1.0,))
        return replace(choice, q=self.q, kernel=self.fit_rows.kernel)

    def advice(self, solution: Solution) -> str:
        """Return the advice on the number of features; empty if there is none."""
        if self.dimension_path:
            return path_advice(self.dimension_path, MOST_FEATURES)
        if self.selection_problem is None:
            return components_advice(solution.eigenvalues.tolist(), solution.eigengap)
        evidence = self.selection_problem.evidence
        useful = useful_features(evidence, solution.W[: evidence.X.shape[1]])
        if useful == self.q:
            return ""
        return (
            f"the first {useful} of {self.q} new features tell y as well as all of them: the "
            f"nearest rows explain no more with the others. n_components={useful} would do"
        )


@dataclass(eq=False)
class _Growth:
    """The numbers of new features that were tried so far, each with its start of the fit."""

    single: FitStart
    dependence: Dependence
    multiples: Sequence[float]
    starts: dict[int, FitStart] = field(default_factory=dict)
    rated: list[RatedDimension] = field(default_factory=list)

    @cached_property
    def _choice(self) -> SelectionProblem:
        fit_rows = self.single.with_features(1).fit_rows
        return fit_rows.selection_problem(self.dependence, 1, self.multiples)

    @property
    def last(self) -> int:
        """The largest number of features that was tried."""
        return len(self.rated)

    @property
    def best_held_out(self) -> int:
        """The least number of features with which held-out rows explain most."""
        return 1 + int(np.argmax([each.trial.heldout_explained for each in self.rated]))

    def try_dimension(self, q: int) -> DimensionTrial:
        """Return the trial of `q` features, one more than the last."""
        candidate = self.single.with_features(q)
        choice = replace(self._choice, q=q, kernel=candidate.fit_rows.kernel)
        self.starts[q] = candidate.with_selection(choice)
        classes = None if self.dependence.classes is None else choice.evidence.slices
        fewer = self.rated[-1] if self.rated else None
        with on_this_machine():
            self.rated.append(rate_dimension(choice, self.starts[q].trials[0], fewer, classes))
        return self.rated[-1].trial

    def start(self, q: int) -> FitStart:
        """Return the start with `q` features, with all trials."""
        return replace(self.starts[q], dimension_path=tuple(each.trial for each in self.rated))
