"""Compare a new fit of a table with the published one, and check it against the limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import subspace_angles
from sklearn.neighbors import NearestNeighbors

from flows.results.refresh import Comparison, LimitCheck, MovedWeight
from flows.results.runs import FitResult
from flows.runs.data import Array, LabelledDataset
from flows.runs.fitting import batches_with_sample, sample_rows
from flows.settings.run_file import RefreshTable
from ism_dask.status import Status
from storage import Model
from storage.tables.schema import TableSchema

# The number of weights that are listed.
_MOST_MOVED = 5
_LEAST_MOVE = 5e-4
# A difference that chance explains is within this number of its standard errors.
_ERRORS = 3.0
# A limit, the value that it limits, and the value in words.
Value = tuple[str, float, str]
# Ends of a fit that need no attention; "approximate" is what sampling or an engine leaves.
_GOOD_ENDS = (Status.CONVERGED.value, Status.APPROXIMATE.value, Status.START.value)


def compare(
    name: str,
    published: Model,
    new: Model,
    labelled: LabelledDataset,
    limits: RefreshTable,
) -> Comparison:
    """Return a new model beside that of the published run `name`, on a sample of the new data."""
    before, after = published.feature_names or (), new.feature_names or ()
    stored = labelled.data.X
    chosen = sample_rows(len(stored), int(new.config["seed"]))
    X = np.concatenate([batch[here] for batch, here in batches_with_sample(stored, chosen)])
    # Columns that the new data lack count as their mean.
    lacks = [each not in after for each in before]
    moved = _in_columns_of(published, X, new)
    Z = published.transform(moved + published.mean * lacks)
    numbers = new.class_names is None
    assert published.sample is not None
    assert new.sample is not None
    explained, then, by_published = (
        Explained.of(points, values, numbers=numbers)
        for points, values in (
            (new.sample.points, new.sample.values),
            (published.sample.points, published.sample.values),
            (Z, new.sample.values),
        )
    )
    # The sine of the largest angle between the features of the same rows. W may turn far without
    # any consequence in directions in which the rows hardly vary.
    centred = (each - each.mean(axis=0) for each in (Z, new.sample.points))
    turn = float(np.sin(subspace_angles(*centred)[0]))
    rows_before, rows = (int(each.metrics["rows"]) for each in (published, new))
    ratio = rows / rows_before
    grown = f"there are {ratio:.3g} times as many rows as before ({rows:,}, before {rows_before:,})"
    values = (
        _fall(explained, then, "than those of the published run did of its rows", limits),
        _fall(explained, by_published, "than the published ones do of the same rows", limits),
        (
            "max_turn",
            turn,
            f"the new features have turned against the published ones by a sine of {turn:.3g}",
        ),
        ("max_rows", ratio, grown),
        ("min_rows", ratio, grown),
        *_class_values(published, new),
    )
    return Comparison(
        published=name,
        turn=turn,
        explained=explained.share,
        explained_before=then.share,
        gain=explained.share / by_published.share if by_published.share > 0 else 1.0,
        checks=tuple(LimitCheck.of(*each, limits) for each in values),
        moved=_moved_weights(published, new),
        added=tuple(each for each in after if each not in before),
        dropped=tuple(each for each in before if each not in after),
    )


def doubts(result: FitResult, comparison: Comparison | None) -> tuple[str, ...]:
    """Return why a new fit should not be published unseen; empty if there is no reason."""
    status = result.status
    # Predictions are judged by the share that they explain: their last steps hardly change it.
    ended = status in _GOOD_ENDS or (result.predicts and status == Status.MAX_ITER.value)
    reasons = () if ended else (f"the fit did not converge ({status})",)
    return reasons if comparison is None else (*reasons, *comparison.reasons)


@dataclass(frozen=True)
class Explained:
    """The share of a label that new features explain, and its standard error.

    A row is predicted by the mean of its nearest neighbours. Noise of the neighbours is taken off,
    so that the share is about 0 for features that say nothing, whatever the number of rows.
    """

    share: float
    error: float

    @classmethod
    def of(cls, points: Array, values: Array, *, numbers: bool) -> Explained:
        """Return it for points (m, q) with their numbers, or the codes of their classes, (m,)."""
        Y = values[:, None] if numbers else values[:, None] == np.unique(values)
        Y = Y - Y.mean(axis=0)
        k = max(1, round(len(points) ** 0.5))
        neighbours = NearestNeighbors(n_neighbors=k).fit(points).kneighbors(return_distance=False)
        losses = ((Y - Y[neighbours].mean(axis=1)) ** 2).sum(axis=1) / (1 + 1 / k)
        totals = (Y**2).sum(axis=1)
        if not totals.any():
            return cls(0.0, 0.0)
        ratio = losses.mean() / totals.mean()
        spread = np.std(losses - ratio * totals) / totals.mean()
        return cls(float(1 - ratio), float(spread / len(points) ** 0.5))


def _fall(now: Explained, then: Explained, what: str, limits: RefreshTable) -> Value:
    """Return the share of it by which the explained share has fallen, beyond chance."""
    if then.share <= 0:
        return "max_fall", 0.0, "the published features explain nothing of the label"
    fall, error = (
        1 - now.share / then.share,
        np.hypot(now.error, (1 - limits.max_fall) * then.error),
    )
    words = f"the new features explain {now.share:.3g} of the label, {fall:.0%} less {what}"
    return "max_fall", float(fall - _ERRORS * error / then.share), f"{words} ({then.share:.3g})"


def _class_values(published: Model, new: Model) -> Iterator[Value]:
    """Yield how many classes came or went, and how far their shares have moved, beyond chance."""
    before, after = _class_counts(published), _class_counts(new)
    if not before or not after:
        return
    words = [f"new {each}" for each in after if each not in before]
    words += [f"gone {each}" for each in before if each not in after]
    yield "max_class_changes", len(words), f"classes of the label are {', '.join(words[:8])}"
    names = list({**before, **after})
    old, now = (np.array([each.get(name, 0) for name in names]) for each in (before, after))
    step = 1 / old.sum() + 1 / now.sum()
    together, change = (old + now) / (old + now).sum(), now / now.sum() - old / old.sum()
    # The mean of the distance where nothing has changed, and some deviations of it.
    chance = np.sqrt(together * (1 - together) * step / (2 * np.pi)).sum()
    chance += _ERRORS * 0.5 * step**0.5
    moved, largest = np.abs(change).sum() / 2, int(np.argmax(np.abs(change)))
    yield (
        "max_class_shift",
        max(0.0, float(moved - chance)),
        f"{moved:.1%} of the rows, {max(0.0, moved - chance):.1%} beyond chance, are of another "
        f"class than before, of {names[largest]} {change[largest]:+.1%}",
    )


def _class_counts(model: Model) -> dict[str, int]:
    """Return the number of rows of each class; empty for a label of numbers."""
    if model.class_names is None or model.table is None:
        return {}
    label = model.metrics["label"]
    columns = (each for each in TableSchema.from_json(model.table).labels if each.key == label)
    return next((dict(zip(each.levels, each.sizes, strict=True)) for each in columns), {})


def _moved_weights(published: Model, new: Model) -> tuple[MovedWeight, ...]:
    """Return the weights that moved most, with the signs of the new features aligned.

    Those whose change is below the digits that are shown are left out.
    """
    before = _in_columns_of(new, published.components, published)
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
        if change[row, column] >= _LEAST_MOVE
    )


def _in_columns_of(wanted: Model, rows: Array, given: Model) -> Array:
    """Return rows of the columns of the given model in those of the wanted one, 0 for others."""
    places = {name: number for number, name in enumerate(given.feature_names or ())}
    named = wanted.feature_names or ()
    here = [number for number, name in enumerate(named) if name in places]
    moved = np.zeros((len(rows), len(named)))
    moved[:, here] = rows[:, [places[named[number]] for number in here]]
    return moved
