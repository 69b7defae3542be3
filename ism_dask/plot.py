"""Plots of a fitted estimator for a notebook: weights, convergence, eigenvalues, rows.

Each function draws into the axes passed to it, or into a new figure, and returns the axes. No
function shows or saves a figure or changes settings of matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.partial_targets import is_continuous, rows_without_score, target_as_array
from ism_dask.records.stopping_rule import Stopping

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.ticker import MaxNLocator
except ModuleNotFoundError as error:
    raise ImportError(
        "ism_dask.plot needs matplotlib, which is not installed: pip install 'ism-dask[plot]'"
    ) from error

# Colour-blind safe, by Okabe and Ito; classes beyond the colours get the next marker.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_BLUE, _RED, _GREY = _COLOURS[0], _COLOURS[4], "#999999"
# Red and blue with white at 0; and a colour map whose lightness rises, which is colour-blind safe.
_DIVERGING, _SEQUENTIAL = "RdBu", "viridis"
# Maximum numbers of rows in a scatter, and of different whole numbers that it reads as classes.
_MAX_POINTS, _MAX_CLASSES = 5_000, 20
# Maximum number of panels side by side.
_PANELS_PER_ROW = 4

# Labels of the axis of the measure that decides convergence.
_MEASURE_LABELS = {"residual": "residual of W", "change": "change of the eigenvalues"}


def components(
    model: IKDR,
    *,
    image_shape: tuple[int, int] | None = None,
    feature_names: Sequence[str] | None = None,
    top: int = 10,
    axes: Any = None,
) -> Array:
    """Draw the weights of each new feature: the largest ones as bars, or all of them as an image.

    Parameters
    ----------
    model : fitted estimator
    image_shape : (height, width), optional
        If rows are images: draws the weights as one, red below 0 and blue above.
    feature_names : d names, optional
        Names of the old features. Default: those of the frame that the model was fitted to.
    top : int, default 10
        Number of weights of each new feature, largest first.
    axes : q Axes, optional

    Returns
    -------
    (q,) array of Axes.
    """
    check_is_fitted(model)
    panels = _panels(len(model.components_), axes)
    if image_shape is None:
        names = _names(model, feature_names)
        if not is_whole(top) or top < 1:
            raise ValueError(f"`top` must be a whole number from 1 up; got {top!r}")
        for ax, weights in zip(panels, model.components_, strict=True):
            _draw_bars(ax, weights, names, top)
    else:
        _draw_images(panels, model.components_, image_shape)
    for number, (ax, value) in enumerate(zip(panels, model.eigenvalues_, strict=True), start=1):
        ax.set_title(f"new feature {number}, eigenvalue {value:.3g}")
    return panels


def convergence(model: IKDR, ax: Axes | None = None) -> Array:
    """Draw the objective and the measure of convergence by iteration.

    The measure is the residual of W or, with a number as `tol`, the change of the eigenvalues. For
    clusterers both curves are by round, and the measure is the change of the embedding's
    eigenvalues.

    Parameters
    ----------
    model : fitted estimator
    ax : Axes, optional

    Returns
    -------
    Two Axes: of the objective, and of the measure on a logarithmic axis at the right.
    """
    check_is_fitted(model)
    ax = _new_axes() if ax is None else ax
    steps, stopping, name = _history(model)
    numbers, limit = np.arange(1, len(steps) + 1), stopping.limit
    measured = np.array([stopping.measured(each) for each in steps])
    positive = measured > 0  # 0 has no logarithm
    ax.plot(numbers, [each.objective for each in steps], color=_BLUE, marker="o")
    ax.set_xlabel(name)
    ax.set_ylabel("objective J", color=_BLUE)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    right = ax.twinx()
    right.set_yscale("log")
    heights = np.append(measured[positive], limit)
    right.set_ylim(heights.min() / 2, heights.max() * 2)
    right.plot(numbers, np.where(positive, measured, np.nan), color=_RED, marker="s", ls="--")
    right.axhline(limit, color=_RED, lw=0.8, ls=":")
    right.set_ylabel(f"{_MEASURE_LABELS[stopping.measure]} (dotted: tolerance)", color=_RED)
    return np.array([ax, right])


def spectrum(model: IKDR, ax: Axes | None = None) -> Axes:
    """Draw the eigenvalues of the new features, the next eigenvalue of Phi, and the eigengap.

    Parameters
    ----------
    model : fitted estimator
    ax : Axes, optional

    Returns
    -------
    The Axes.
    """
    check_is_fitted(model)
    ax = _new_axes() if ax is None else ax
    values, gap = model.eigenvalues_, float(model.eigengap_)
    q, next_value = len(values), float(values[-1]) - gap
    ax.plot(np.arange(1, q + 1), values, "o", color=_BLUE, label="new features")
    ax.plot([q + 1], [next_value], "o", color=_GREY, mfc="none", label="the next one")
    ax.vlines(q + 0.5, next_value, values[-1], color=_RED, lw=2, label=f"eigengap {gap:.3g}")
    ax.set_xlabel("new feature")
    ax.set_ylabel("eigenvalue of Phi")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
    return ax


def scatter(
    model: IKDR,
    X: Any,
    y: Any = None,
    *,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
) -> Axes:
    """Draw the rows in two new features, coloured by y.

    If there are more than 5,000 rows, a random sample is drawn, the same one each time.

    Parameters
    ----------
    model : fitted estimator
    X : (n, d) array, frame, Dask array or opened data set
    y : (n,) labels or numbers, optional
        Classes get a legend, numbers a colour bar; rows without a value (NaN, None) are grey.
    features : two ints, default (0, 1)
        Indices of the new features to draw, from 0.
    ax : Axes, optional

    Returns
    -------
    The Axes.
    """
    check_is_fitted(model)
    columns = _two_of(features, len(model.components_))
    projected = model.transform(X)
    n = len(projected)
    values = None if y is None else _one_per_row(y, n)
    indices = np.arange(n)
    if n > _MAX_POINTS:
        indices = np.sort(np.random.default_rng(0).choice(n, _MAX_POINTS, replace=False))
    Z = _selected_rows(projected, indices)[:, columns]
    ax = _new_axes() if ax is None else ax
    if values is None:
        ax.scatter(*_xy(Z), s=12, color=_BLUE, alpha=0.7, lw=0)
    else:
        _draw_coloured(ax, Z, values[indices], model)
    ax.set_xlabel(f"new feature {columns[0] + 1}")
    ax.set_ylabel(f"new feature {columns[1] + 1}")
    return ax


def _draw_bars(ax: Axes, weights: Array, names: Sequence[str], top: int) -> None:
    largest = np.argsort(-np.abs(weights), kind="stable")[:top]
    shown = weights[largest]
    ax.barh(np.arange(len(shown)), shown, color=np.where(shown >= 0, _BLUE, _RED))
    ax.set_yticks(np.arange(len(shown)), [names[j] for j in largest])
    ax.invert_yaxis()
    ax.axvline(0.0, color="black", lw=0.8)
    ax.set_xlabel("weight, in standardised units")


def _draw_images(panels: Array, weights: Array, shape: tuple[int, int]) -> None:
    d = weights.shape[1]
    if len(shape) != 2 or np.prod(shape) != d:
        raise ValueError(
            f"`image_shape` must be (height, width) with {d} pixels in all; got {shape!r}"
        )
    # One colour scale for all panels, so that their weights can be compared.
    most = np.abs(weights).max()
    for ax, row in zip(panels, weights, strict=True):
        image = ax.imshow(row.reshape(shape), cmap=_DIVERGING, vmin=-most, vmax=most)
        ax.set_xticks([])
        ax.set_yticks([])
    bar = panels[0].figure.colorbar(image, ax=list(panels), shrink=0.8)
    bar.set_label("weight, in standardised units")


def _draw_coloured(ax: Axes, Z: Array, given: Array, model: IKDR) -> None:
    """Draw rows (n, 2) in the colours of their values (n,); rows without a value are grey."""
    has_value = ~rows_without_score(given)
    if not _are_numbers(given[has_value]):
        has_value[has_value] = ~_unlabelled(given[has_value], model)
    values = given[has_value]
    if not has_value.all():
        ax.scatter(*_xy(Z[~has_value]), s=8, color=_GREY, alpha=0.5, lw=0, label="unknown")
    if _are_numbers(values):
        points = ax.scatter(
            *_xy(Z[has_value]), c=values.astype(float), s=12, cmap=_SEQUENTIAL, lw=0
        )
        ax.figure.colorbar(points, ax=ax, label="y")
    else:
        _draw_classes(ax, Z[has_value], values)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(ncols=1 + (len(ax.collections) > _MAX_CLASSES // 2))


def _draw_classes(ax: Axes, Z: Array, values: Array) -> None:
    classes, codes = np.unique(values, return_inverse=True)
    for code, label in enumerate(classes):
        ax.scatter(
            *_xy(Z[codes == code]),
            s=16,
            marker=_MARKERS[code // len(_COLOURS) % len(_MARKERS)],
            color=_COLOURS[code % len(_COLOURS)],
            alpha=0.8,
            lw=0,
            label=f"{label:g}" if values.dtype.kind == "f" else str(label),
        )


def _are_numbers(values: Array) -> bool:
    """Return whether values (m,), none missing, are drawn as numbers and not as classes."""
    many = values.dtype.kind in "iuf" and len(np.unique(values)) > _MAX_CLASSES
    return many or is_continuous(values)


def _unlabelled(values: Array, model: IKDR) -> Array:
    """Return which values (m,) are -1 as scikit-learn's sign for no class, and not as a class."""
    is_class = values.dtype.kind not in "ifO" or -1 in getattr(model, "classes_", [-1])
    return np.zeros(len(values), dtype=bool) if is_class else np.asarray(values == -1)


def _xy(Z: Array) -> tuple[Array, Array]:
    return Z[:, 0], Z[:, 1]


def _history(model: IKDR) -> tuple[Sequence[Any], Stopping, str]:
    """Return the steps of a fit, its stopping rules, and the name of a step."""
    rounds: Sequence[Any] | None = getattr(model, "rounds_", None)
    if rounds is not None and model.plan.rounds is not None:
        return rounds, model.plan.rounds, "round"
    return model.history_, model.plan.iterations, "iteration"


def _names(model: IKDR, given: Sequence[str] | None) -> Sequence[str]:
    d = model.n_features_in_
    if given is None:
        given = getattr(model, "feature_names_in_", [f"feature {j}" for j in range(d)])
    if len(given) != d:
        raise ValueError(f"`feature_names` must be {d} names, one a feature; got {len(given)}")
    return given


def _two_of(features: Sequence[int], q: int) -> list[int]:
    chosen = list(features)
    if len(chosen) == 2 and all(is_whole(each) and 0 <= each < q for each in chosen):
        return chosen
    advice = "" if q > 1 else "; fit with `n_components` of 2 or more to draw two"
    raise ValueError(
        f"`features` must be two whole numbers from 0 to {q - 1}; got {features!r}{advice}"
    )


def _one_per_row(y: Any, n: int) -> Array:
    given = column_or_1d(target_as_array(y))
    if len(given) != n:
        raise ValueError(f"`y` must tell of each row of X: X has {n} rows, y has {len(given)}")
    return np.asarray(given)


def _selected_rows(rows: Any, indices: Array) -> Array:
    """Return the rows with these indices of a frame, an array or a lazy array, in memory."""
    return np.asarray(getattr(rows, "iloc", rows)[indices])


def _panels(count: int, axes: Any) -> Array:
    if axes is None:
        columns = min(count, _PANELS_PER_ROW)
        size = (4.0 * columns, 3.6 * -(-count // columns))
        figure, grid = plt.subplots(
            -(-count // columns), columns, figsize=size, layout="constrained", squeeze=False
        )
        for spare in grid.flat[count:]:
            figure.delaxes(spare)
        return np.asarray(grid.flat[:count])
    panels = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(panels) != count:
        raise ValueError(f"`axes` must be {count} Axes, one a new feature; got {len(panels)}")
    return panels


def _new_axes() -> Axes:
    return plt.subplots(layout="constrained")[1]
