"""What a supervised fit begins with: how many new features, which width, which W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ism_dask.estimators.preparation import FitRows
from ism_dask.gamma.base import Dependence
from ism_dask.records.iteration import Solution, State
from ism_dask.rows import on_this_machine
from ism_dask.solvers.ism import state_at
from ism_dask.solvers.lbfgs import Precondition
from ism_dask.solvers.width_selection import (
    LEAST_ROWS,
    SelectionProblem,
    Trial,
    adds_information,
    try_widths,
    useful_features,
)
from ism_dask.status import components_advice

# New features at most, where the data are to tell how many.
_MOST_FEATURES = 6


@dataclass(frozen=True, eq=False)
class FitStart:
    """What a fit begins with.

    Attributes
    ----------
    drawn : Drawn
    q : int
        New features.
    state : State or None
        Where the iteration begins; None is the spectral start.
    choice : Choice or None
        What a selection was made of, if there was one.
    trials : tuple of Trial
        What it tried, the best first.
    """

    drawn: FitRows
    q: int
    state: State | None = None
    choice: SelectionProblem | None = None
    trials: tuple[Trial, ...] = ()

    @property
    def can_select(self) -> bool:
        """Whether there are rows enough to choose by, and no direction is constant over them."""
        return len(self.drawn.sample) >= LEAST_ROWS and self.q < self.drawn.space.n_varying

    @property
    def precondition(self) -> Precondition | None:
        """What makes the steps uphill longer from a W that was chosen, or None where none was."""
        return None if self.choice is None else self.choice.evidence.precondition

    def selected(self, dependence: Dependence, multiples: Sequence[float]) -> FitStart:
        """Return the beginning with the width and the W that a selection prefers."""
        return self._by(self.drawn.choice(dependence, self.q, multiples))

    def grown(self, dependence: Dependence, multiples: Sequence[float], most: int) -> FitStart:
        """Return the beginning with as many features as let neighbours explain more, up to `most`.

        It begins with one.
        """
        first = self._of(1)
        choice = first.drawn.choice(dependence, 1, multiples)
        best = first._by(choice)
        for q in range(2, min(most, _MOST_FEATURES) + 1):
            plain = self._of(q)
            more = plain._by(replace(choice, q=q, kernel=plain.drawn.kernel))
            if not adds_information(more.trials[0], best.trials[0]):
                break
            best = more
        return best

    def _by(self, choice: SelectionProblem) -> FitStart:
        """Return the beginning with what a selection makes of `choice`."""
        with on_this_machine():
            trials = tuple(try_widths(choice, self.drawn.seed))
        best = trials[0]
        return replace(
            self,
            drawn=self.drawn.with_kernel(self.drawn.kernel.widened(best.width)),
            state=state_at(best.W),
            choice=choice,
            trials=trials,
        )

    def _of(self, q: int) -> FitStart:
        """Return the plain beginning with another number of features."""
        kernel = self.drawn.kernel.widened(float(np.sqrt(q / self.q)))
        return replace(self, q=q, drawn=self.drawn.with_kernel(kernel))

    def advice(self, solution: Solution) -> str:
        """Return what is to be said against the number of features, or nothing."""
        if self.choice is None:
            return components_advice(solution.eigenvalues.tolist(), solution.eigengap)
        evidence = self.choice.evidence
        useful = useful_features(evidence, solution.W[: evidence.X.shape[1]])
        if useful == self.q:
            return ""
        return (
            f"the first {useful} of {self.q} new features tell y as well as all of them: the "
            f"nearest rows explain no more with the others. n_components={useful} would do"
        )
