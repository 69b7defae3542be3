"""The number of new features: the one from which on the evidence no longer rises."""

from __future__ import annotations

from collections.abc import Callable

from ism_dask.records.measured import DimensionTrial
from ism_dask.selection.regularisation import Choice, choose_by_evidence
from ism_dask.selection.sample import Sample

# The most features that are tried.
MOST_FEATURES = 6


def choose_dimension(
    sample_of: Callable[[int], Sample], most: int
) -> tuple[int, tuple[DimensionTrial, ...]]:
    """Return the number of new features, at most `most`, and the trials from 1 up.

    A feature is taken if the log evidence rises by more than its weights cost.
    """
    trials: list[DimensionTrial] = []
    before: Choice | None = None
    for q in range(1, min(most, MOST_FEATURES) + 1):
        sample = sample_of(q)
        choice = choose_by_evidence(sample)
        gain = 0.0 if before is None else choice.evidence - before.evidence
        trials.append(_trial(sample, choice, gain))
        if not trials[-1].is_taken:
            return q - 1, tuple(trials)
        before = choice
    return trials[-1].q, tuple(trials)


def _trial(sample: Sample, choice: Choice, gain: float) -> DimensionTrial:
    n, d = sample.rows.X.shape
    # A subspace of dimension q has (d - q) q free weights, this many more than one of q - 1.
    more = max(d - 2 * sample.q + 1, 1)
    losses = sample.blocks.leave_one_out(sample.at(choice.setting), choice.W)
    total = float((sample.rows.Y**2).sum(axis=1).mean())
    return DimensionTrial(
        q=sample.q,
        explained=1.0 - float(losses.mean()) / total,
        gain=gain / n,
        needed_gain=more * sample.weight_cost / n,
    )
