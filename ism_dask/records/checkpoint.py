"""Checkpoints of a fit: what a fit that is cut off needs to continue to the same bits.

A fit is a chain of solver runs, each decided by those before. A caller that has saved the runs of
an interrupted fit hands them to a new fit of the same rows and parameters. Each run continues from
its last state, at which it ends at once if it had ended, and the fit comes to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ism_dask.records.iteration import Round, State


@dataclass(frozen=True)
class OuterState:
    """All that an alternating fit needs to continue after a whole round.

    `start` is the state with the W of the last round, at which the next one starts. The embedding
    is not saved: it is computed from W again, to the same bits.
    """

    rounds: tuple[Round, ...]
    start: State


@dataclass(frozen=True)
class Checkpoint:
    """The saved progress of a fit.

    `outer` is the state after the last whole round, None for a fit without rounds or in its first
    round. `runs` are the last states of the solver runs since then, None for one without steps.
    """

    outer: OuterState | None = None
    runs: tuple[State | None, ...] = ()

    @property
    def progress(self) -> str:
        """A text for the progress of the fit, such as "round 2, iteration 7"."""
        rounds = 0 if self.outer is None else len(self.outer.rounds)
        last = self.runs[-1] if self.runs else None
        done = 0 if last is None else len(last.history)
        words = [f"round {rounds + 1}"] if rounds else []
        return ", ".join([*words, f"iteration {done + 1}"])


class CheckpointedFit:
    """The solver runs of one fit, restored or saved as they go.

    Parameters
    ----------
    saved : Checkpoint, optional
        The checkpoint of an interrupted fit with the same rows and parameters.
    save : callable, optional
        Called with the new checkpoint whenever there is one, to save it.

    Attributes
    ----------
    checkpoint : Checkpoint
        The latest checkpoint.
    earlier_seconds : float
        Seconds that the fit had taken before it was interrupted.
    """

    def __init__(
        self,
        saved: Checkpoint | None = None,
        save: Callable[[Checkpoint], None] | None = None,
    ) -> None:
        self.checkpoint = Checkpoint() if saved is None else saved
        self._save = save
        self._next_run = 0
        runs = [run for run in self.checkpoint.runs if run is not None]
        seconds = [record.seconds for run in runs for record in run.history[-1:]]
        outer = self.checkpoint.outer
        seconds += [] if outer is None else [each.seconds for each in outer.rounds]
        self.earlier_seconds = max(seconds, default=0.0)

    def next_run(
        self, report: Callable[[State], None] | None
    ) -> tuple[State | None, Callable[[State], None]]:
        """Return the last state of the next solver run, if there is one, and a function of others.

        The function saves a state of the run before it reports the state.
        """
        number, self._next_run = self._next_run, self._next_run + 1
        saved = self.checkpoint.runs

        def save(state: State) -> None:
            runs = [*self.checkpoint.runs]
            # An engine may decline before the first step of its run.
            runs += [None] * (number + 1 - len(runs))
            runs[number] = state
            self._update(replace(self.checkpoint, runs=tuple(runs)))
            if report is not None:
                report(state)

        return saved[number] if number < len(saved) else None, save

    def commit_outer(self, outer: OuterState) -> None:
        """Save the state after a whole round and drop the solver runs of that round."""
        self._next_run = 0
        self._update(Checkpoint(outer))

    def _update(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        if self._save is not None:
            self._save(checkpoint)
