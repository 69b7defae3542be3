"""Compare a new fit of a table with the published one, and say what is suspicious about it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flows.results.refresh import ColumnDrift, Comparison, FeatureDrift, MovedWeight
from flows.results.runs import FitResult
from flows.runs.data import Array, LabelledDataset, target_of
from flows.runs.projection import Drift
from flows.settings.kernels import fitted_kernel
from flows.settings.run_file import RefreshTable
from flows.settings.runs import FitSettings
from flows.text import new_feature
from ism_dask import hsic
from ism_dask.status import Status
from storage import Model

# The objective is compared on a sample of this many rows.
_SAMPLE_ROWS, _ROWS_PER_READ = 2000, 4096
_MOST_MOVED = 5
# Ends of a fit that need no attention; "approximate" is what sampling or an engine leaves.
_GOOD_ENDS = (Status.CONVERGED.value, Status.APPROXIMATE.value, Status.START.value)


def compare(
    name: str, published: Model, new: Model, labelled: LabelledDataset, settings: FitSettings
) -> Comparison:
    """Return a new model beside the published one, on the rows of the new data.

    Parameters
    ----------
    name : str
        The published run.
    published, new : Model
    labelled : LabelledDataset
        The new data.
    settings : FitSettings
        Those of the new fit.
    """
    before, after = frozenset(published.feature_names or ()), new.feature_names or ()
    return Comparison(
        published=name,
        turn=float(subspace_sines(published, new)[0]),
        objective_ratio=_objective_ratio(published, new, labelled, settings),
        moved=moved_weights(published, new),
        drift=_drift(published, labelled),
        columns=_moved_columns(published, new),
        added=tuple(each for each in after if each not in before),
        dropped=tuple(sorted(before - frozenset(after))),
    )


def doubts(result: FitResult, comparison: Comparison | None, limits: RefreshTable) -> list[str]:
    """Return why a new fit should not be published unseen; empty if there is no reason."""
    reasons = []
    ending = result.fitted.ending
    if ending.status not in _GOOD_ENDS:
        reasons.append(f"the fit did not converge ({ending.status})")
    if comparison is not None:
        reasons += [*_doubts_of_w(comparison, limits), *_doubts_of_rows(comparison, limits)]
    return reasons


def _doubts_of_w(comparison: Comparison, limits: RefreshTable) -> Iterator[str]:
    if comparison.turn > limits.max_turn:
        yield (
            "W has turned: the sine of the largest angle to the published one is "
            f"{comparison.turn:.3g}, expected at most {limits.max_turn:g}"
        )
    if comparison.objective_ratio < limits.min_objective:
        yield (
            f"the new features depend on the label {comparison.objective_ratio:.3g} times as "
            f"strongly as the published ones, expected at least {limits.min_objective:g}"
        )


def _doubts_of_rows(comparison: Comparison, limits: RefreshTable) -> Iterator[str]:
    for each in comparison.drift:
        if each.share_outside > limits.max_outside:
            yield (
                f"{each.share_outside:.1%} of the rows are outside the range that "
                f"{new_feature(each.feature)} had, expected at most {limits.max_outside:.1%}"
            )
        if abs(each.mean_shift) > limits.max_shift:
            yield (
                f"the mean of {new_feature(each.feature)} has moved by "
                f"{each.mean_shift:+.2f} deviations, expected at most {limits.max_shift:g}"
            )
    for column in comparison.columns:
        if abs(column.mean_shift) > limits.max_shift:
            yield (
                f"the mean of the column {column.column!r} has moved by "
                f"{column.mean_shift:+.2f} deviations, expected at most {limits.max_shift:g}"
            )
    for words, names in (("lack", comparison.dropped), ("have new", comparison.added)):
        if names:
            yield f"the data {words} columns: {', '.join(names[:8])}"


def _in_columns_of(new: Model, published: Model) -> Array:
    """Return the published components (q, d) in the order of the columns of the new model.

    They are in the standardised units of the published model. Columns that it lacks have 0.
    """
    places = {name: number for number, name in enumerate(published.feature_names or ())}
    components = np.zeros((len(published.components), new.components.shape[1]))
    for number, name in enumerate(new.feature_names or ()):
        if name in places:
            components[:, number] = published.components[:, places[name]]
    return components


def _published_basis(published: Model, new: Model) -> Array:
    """Return orthonormal columns (d, q): the published subspace in the new standardised units."""
    places = {name: number for number, name in enumerate(published.feature_names or ())}
    scale = np.array(
        [
            published.scale[places[name]] if name in places else 1.0
            for name in new.feature_names or ()
        ]
    )
    basis: Array = np.linalg.qr((_in_columns_of(new, published) * (new.scale / scale)).T)[0]
    return basis


def subspace_sines(published: Model, new: Model) -> Array:
    """Return the sines of the angles between the two subspaces of the columns, largest first.

    All are 1 if a published feature has weights only on columns that the new model lacks.
    """
    if not _in_columns_of(new, published).any(axis=1).all():
        return np.ones(min(len(published.components), len(new.components)))
    bases = (_published_basis(published, new), np.linalg.qr(new.components.T)[0])
    smaller, larger = sorted(bases, key=np.size)
    outside = smaller - larger @ (larger.T @ smaller)
    sines: Array = np.minimum(np.linalg.svd(outside, compute_uv=False), 1.0)
    return sines


def moved_weights(published: Model, new: Model) -> tuple[MovedWeight, ...]:
    """Return the weights that moved most, with the signs of the new features aligned."""
    before = _in_columns_of(new, published)
    q = min(len(before), len(new.components))
    before, after = before[:q], new.components[:q]
    before = before * np.where((before * after).sum(axis=1) < 0, -1.0, 1.0)[:, None]
    change = np.abs(after - before)
    largest = np.argsort(-change, axis=None, kind="stable")[:_MOST_MOVED]
    names = new.feature_names or ()
    return tuple(
        MovedWeight(
            feature=int(row),
            column=names[column],
            before=float(before[row, column]),
            after=float(after[row, column]),
        )
        for row, column in zip(*np.unravel_index(largest, change.shape), strict=True)
    )


def _moved_columns(published: Model, new: Model) -> tuple[ColumnDrift, ...]:
    """Return the columns whose means moved most, of those that both have."""
    places = {name: number for number, name in enumerate(published.feature_names or ())}
    drifts = [
        ColumnDrift(
            column=name,
            mean_shift=float((new.mean[here] - published.mean[there]) / published.scale[there]),
            deviation_ratio=float(new.scale[here] / published.scale[there]),
        )
        for here, name in enumerate(new.feature_names or ())
        if (there := places.get(name)) is not None
    ]
    return tuple(sorted(drifts, key=lambda each: -abs(each.mean_shift))[:_MOST_MOVED])


def _objective_ratio(
    published: Model, new: Model, labelled: LabelledDataset, settings: FitSettings
) -> float:
    """Return the dependence of the new features on the label over that of the published ones.

    The published subspace counts in the standardised units of the new rows, as W does.
    """
    n = len(labelled.y)
    random = np.random.default_rng(settings.seed)
    chosen = np.sort(random.choice(n, min(n, _SAMPLE_ROWS), replace=False))
    X = np.concatenate([rows[near] for rows, near in _parts(labelled, chosen)])
    y = labelled.y[chosen]
    kernel = fitted_kernel(new.metrics["fitted_kernel"])
    target = target_of(y, settings.target)
    standardised = (X - new.mean) / new.scale
    projected = (standardised @ _published_basis(published, new), new.transform(X))
    old, now = (np.asarray(hsic(Z, y, kernel=kernel, target=target)) for Z in projected)
    return float(now / old) if old > 0 else np.inf


def _parts(labelled: LabelledDataset, chosen: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the rows with the ascending numbers `chosen` by blocks, and their places in them."""
    for start, rows in _blocks(labelled):
        first, last = np.searchsorted(chosen, [start, start + len(rows)])
        yield rows, chosen[first:last] - start


def _blocks(labelled: LabelledDataset) -> Iterator[tuple[int, Array]]:
    X = labelled.data.X
    for start in range(0, len(X), _ROWS_PER_READ):
        yield start, X.read(start, min(start + _ROWS_PER_READ, len(X)))


def _drift(published: Model, labelled: LabelledDataset) -> tuple[FeatureDrift, ...]:
    drift = Drift(published)
    for _, rows in _blocks(labelled):
        drift.add(_projected(published, labelled, rows))
    return tuple(FeatureDrift.from_json(each) for each in drift.report())


def _projected(published: Model, labelled: LabelledDataset, rows: Array) -> Array:
    """Return rows (m, d) of the new data in the published features.

    Columns that the data no longer have count as their mean.
    """
    names = labelled.data.feature_names
    if names == published.feature_names:
        return published.transform(rows)
    places = {name: number for number, name in enumerate(names or ())}
    before = np.tile(published.mean, (len(rows), 1))
    for number, name in enumerate(published.feature_names or ()):
        if name in places:
            before[:, number] = rows[:, places[name]]
    return published.transform(before)
