"""Compare a new fit of a table with the published one, and check it against the limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from flows.results.refresh import Comparison, LimitCheck, MovedWeight
from flows.results.runs import FitResult
from flows.runs.data import Array, row_batches
from flows.runs.fitting import chosen_of, sample_rows
from flows.settings.run_file import RefreshTable
from ism_dask.estimators.input_rows import row_digests
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


def compare(
    name: str,
    published: Model,
    new: Model,
    rows: Any,
    limits: RefreshTable,
    *,
    equal_rows: tuple[float, float],
) -> Comparison:
    """Return a new model beside that of the published run `name`, on a sample of its rows (n, d).

    The rows are in memory or on disk. `equal_rows` is the share of rows that equal an earlier one:
    of the published run, of the new.
    """
    before, after = published.feature_names or (), new.feature_names or ()
    chosen = sample_rows(len(rows), int(new.config["seed"]))
    X = np.concatenate([chosen_of(chosen, *each) for each in row_batches(rows)])
    # Columns that the new data lack count as their mean.
    lacks = [each not in after for each in before]
    moved = _in_columns_of(published, X, new)
    Z = published.transform(moved + published.mean * lacks)
    learned, (points, labels) = _sample_of(published), _sample_of(new)
    explained, then = Explained.of(points, labels), Explained.of(*learned)
    by_published = Explained.of(Z, labels)
    # Rows with other labels than before: each fit may explain its own, whatever they are called.
    foretold = Explained.of(Z, labels, learned)
    falls = (
        _fall(explained, then, "the new features explain", "those of its rows did", limits),
        _fall(explained, by_published, "the new features explain", "the published ones do", limits),
        _fall(foretold, then, "the rows of the published run predict", "they did of it", limits),
    )
    turn = _turn(published, Z, points)
    n, n_before = len(rows), int(published.metrics["rows"])
    ratio = n / n_before
    grown = f"there are {ratio:.3g} times as many rows as before ({n:,}, before {n_before:,})"
    values = (
        ("max_fall", *max(falls)),
        (
            "max_turn",
            turn,
            f"the new features have turned against the published ones by a sine of {turn:.3g}",
        ),
        ("max_shift", *_shift(published, new)),
        (
            "max_equal_rows",
            max(0.0, equal_rows[1] - equal_rows[0]),
            f"{equal_rows[1]:.1%} of the rows equal an earlier one, before {equal_rows[0]:.1%}",
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
    status = Status(result.status)
    # What sampling or an engine leaves needs no attention. Predictions are judged by the share that
    # they explain: their last steps hardly change it.
    harmless = (Status.APPROXIMATE, *([Status.MAX_ITER] if result.predicts else ()))
    ended = status.is_expected or status in harmless
    reasons = () if ended else (f"the fit did not converge ({status.value})",)
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
    def of(
        cls, points: Array, labels: Array, learned: tuple[Array, Array] | None = None
    ) -> Explained:
        """Return it for points (m, q) with the names of their classes (m,), or their numbers.

        Numbers are (m,) or (m, t); each of several columns counts alike. `learned` are the points
        and labels that the neighbours are from, by default the others.
        """
        near, near_labels = (points, labels) if learned is None else learned
        if labels.shape[1:] != near_labels.shape[1:]:  # these labels are others than before
            return cls(0.0, 0.0)
        if labels.dtype.kind == near_labels.dtype.kind == "f":
            unit = labels.std(axis=0) + np.finfo(float).tiny
            Y, near_Y = (each.reshape(len(each), -1) / unit for each in (labels, near_labels))
        else:
            names = np.unique(np.concatenate([labels.astype(str), near_labels.astype(str)]))
            Y, near_Y = (
                (each.astype(str)[:, None] == names).astype(float) for each in (labels, near_labels)
            )
        k = max(1, round(len(near) ** 0.5))
        search = NearestNeighbors(n_neighbors=k).fit(near)
        # Without points, a row is no neighbour of itself.
        neighbours = search.kneighbors(None if learned is None else points, return_distance=False)
        losses = ((Y - near_Y[neighbours].mean(axis=1)) ** 2).sum(axis=1) / (1 + 1 / k)
        totals = ((Y - Y.mean(axis=0)) ** 2).sum(axis=1)
        if not totals.any():
            return cls(0.0, 0.0)
        ratio = losses.mean() / totals.mean()
        spread = np.std(losses - ratio * totals) / totals.mean()
        return cls(float(1 - ratio), float(spread / len(points) ** 0.5))


def share_of_equal_rows(X: Any, y: Array) -> float:
    """Return the share of the rows X (n, d) that equal an earlier row, with its label in y."""
    y = y.reshape(len(y), -1)
    digests = [
        row_digests(np.hstack([rows, y[start : start + len(rows)]]))
        for start, rows in row_batches(X)
    ]
    return 1 - len(np.unique(np.concatenate(digests))) / len(X)


def _sample_of(model: Model) -> tuple[Array, Array]:
    """Return the rows that a model was saved with, and the number or the class of each."""
    assert model.sample is not None
    values, names = model.sample.values, model.class_names
    labels = values.astype(float) if names is None else np.array(names)[values]
    return model.sample.points, labels


def _turn(published: Model, Z: Array, points: Array) -> float:
    """Return the sine by which the published features of rows, Z, have turned against new ones.

    A feature counts by what J loses without it, against the one that it would miss most: W is
    free to turn one that says next to nothing. W may also turn far without any consequence in
    directions in which the rows hardly vary.
    """
    old, new = (each - each.mean(axis=0) for each in (Z, points))
    basis = np.linalg.qr(new)[0]
    lengths = np.linalg.norm(old, axis=0)
    outside = np.linalg.norm(old - basis @ (basis.T @ old), axis=0)
    sines = np.divide(outside, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    shares = published.metrics["contributions"] or ()
    lost = np.array([max(each["lost"], 0.0) for each in shares])
    return float((sines * lost / lost.max()).max() if lost.any() else sines.max())


def _shift(published: Model, new: Model) -> tuple[float, str]:
    """Return by how many of its deviations the mean of a column has moved, at most, in words."""
    now = dict(zip(new.feature_names or (), new.mean, strict=True))
    names = published.feature_names or ()
    means = zip(names, published.mean, strict=True)
    after = np.array([now.get(name, mean) for name, mean in means])
    shifts = np.abs(after - published.mean) / published.scale
    most = int(shifts.argmax())
    moved = f"from {published.mean[most]:.4g} to {after[most]:.4g}"
    words = f"the mean of {names[most]} has moved {moved}, by {shifts[most]:.3g} of its deviations"
    return float(shifts[most]), words


def _fall(
    now: Explained, then: Explained, who: str, others: str, limits: RefreshTable
) -> tuple[float, str]:
    """Return the share of it by which the explained share has fallen, beyond chance, in words."""
    if then.share <= 0:
        return 0.0, "the published features explain nothing of the label"
    fall, error = (
        1 - now.share / then.share,
        np.hypot(now.error, (1 - limits.max_fall) * then.error),
    )
    words = f"{who} {now.share:.3g} of the label, {fall:.0%} less than {others} ({then.share:.3g})"
    return max(0.0, float(fall - _ERRORS * error / then.share)), words


def _class_values(published: Model, new: Model) -> Iterator[Value]:
    """Yield how many classes came or went, and how far their shares have moved, beyond chance."""
    before, after = _class_counts(published), _class_counts(new)
    if not before or not after:
        return
    words = [f"new {each}" for each in after if each not in before]
    words += [f"gone {each}" for each in before if each not in after]
    yield "max_class_changes", len(words), f"classes of the label: {', '.join(words[:8])}"
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
