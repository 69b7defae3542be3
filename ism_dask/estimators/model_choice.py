"""The start of a supervised fit: the number of new features, the kernel width and the first W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.estimators.preparation import FitRows
from ism_dask.gamma.base import Dependence
from ism_dask.records.iteration import Solution, State
from ism_dask.rows.execution import on_this_machine
from ism_dask.solvers.ism import state_at
from ism_dask.solvers.lbfgs import Precondition
from ism_dask.solvers.width_selection import (
    SelectionProblem,
    Trial,
    adds_information,
    try_widths,
    useful_features,
)
from ism_dask.status import components_advice

# Maximum number of new features if the data decide the number.
_MOST_FEATURES = 6


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
    """

    fit_rows: FitRows
    q: int
    state: State | None = None
    selection_problem: SelectionProblem | None = None
    trials: tuple[Trial, ...] = ()

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
        return self._with_selection(self.fit_rows.selection_problem(dependence, self.q, multiples))

    def grown(self, dependence: Dependence, multiples: Sequence[float], most: int) -> FitStart:
        """Return the start with the number of features that the nearest rows can use, up to `most`.

        It starts with one feature and adds one at a time, as long as the nearest rows then explain
        clearly more of y.
        """
        single = self._with_features(1)
        choice = single.fit_rows.selection_problem(dependence, 1, multiples)
        best = single._with_selection(choice)
        for q in range(2, min(most, _MOST_FEATURES) + 1):
            candidate = self._with_features(q)
            larger = candidate._with_selection(
                replace(choice, q=q, kernel=candidate.fit_rows.kernel)
            )
            if not adds_information(larger.trials[0], best.trials[0]):
                break
            best = larger
        return best

    def _with_selection(self, choice: SelectionProblem) -> FitStart:
        """Return the start with the best trial of the selection problem `choice`."""
        with on_this_machine():
            trials = tuple(try_widths(choice, self.fit_rows.seed))
        best = trials[0]
        return replace(
            self,
            fit_rows=self.fit_rows.with_kernel(self.fit_rows.kernel.widened(best.width)),
            state=state_at(best.W),
            selection_problem=choice,
            trials=trials,
        )

    def _with_features(self, q: int) -> FitStart:
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
