"""Plots of a fitted estimator for a notebook: weights, convergence, eigenvalues, rows.

Each function draws into the axes passed to it, or into a new figure, and returns the axes. No
function shows or saves a figure or changes settings of matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.estimators.base import IKDR, column_names
from ism_dask.estimators.partial_targets import is_continuous, rows_without_score, target_as_array
from ism_dask.estimators.unfolding import ColoredMVU
from ism_dask.inference.intervals import Intervals
from ism_dask.pictures import drawing
from ism_dask.pictures.colours import BLUE, RED, largest_weight
from ism_dask.records.stopping_rule import Stopping

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Maximum numbers of rows in a scatter, and of different whole numbers that it reads as classes.
_MAX_POINTS, _MAX_CLASSES = 5_000, 20
# Maximum number of panels side by side, and width in inches of one with names and bars or an image.
_PANELS_PER_ROW = 4
_BARS_WIDTH, _IMAGE_WIDTH = 5.6, 4.0
# The number of weights below a response.
_TOP = 10
# Where a legend hides nothing, and its columns there.
_ABOVE, _LEGEND_COLUMNS = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}, 5


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
    width = _BARS_WIDTH if image_shape is None else _IMAGE_WIDTH
    panels = _panels(len(model.components_), width, axes)
    if image_shape is None:
        names = _names(model, feature_names)
        _check_top(top)
        for ax, weights in zip(panels, model.components_, strict=True):
            largest = np.argsort(-np.abs(weights), kind="stable")[:top]
            drawing.draw_weights(ax, [names[j] for j in largest], weights[largest])
    else:
        _draw_images(panels, model.components_, image_shape)
    new_names = model.get_feature_names_out()
    for ax, name, value in zip(panels, new_names, model.eigenvalues_, strict=True):
        ax.set_title(f"{name}, eigenvalue {value:.3g}")
    return panels


def convergence(model: IKDR, ax: Axes | None = None) -> Array:
    """Draw the objective and the measure of convergence by iteration.

    The measure is the residual of W or, with a number as `tol`, the change of the eigenvalues. For
    clusterers both curves are by round, and the measure is the `movement` of a `Round`.

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
    numbers = range(1, len(steps) + 1)
    drawing.draw_objective(ax, numbers, [each.objective for each in steps], name)
    ax.yaxis.label.set_color(BLUE)
    right = ax.twinx()
    measured = [stopping.measured(each) for each in steps]
    drawing.draw_measure(
        right, numbers, measured, name, measure=stopping.measure, limit=stopping.limit_of(steps[-1])
    )
    right.set_ylabel(f"{right.get_ylabel()} (dotted: tolerance)", color=RED)
    return np.array([ax, right])


def spectrum(model: IKDR | ColoredMVU, ax: Axes | None = None) -> Axes:
    """Draw the eigenvalues of the new features, the next eigenvalue of Phi, and the eigengap.

    Of a `ColoredMVU`, it draws the eigenvalues of K: those of the coordinates, and the others.

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
    values = model.eigenvalues_
    if isinstance(model, ColoredMVU):
        drawing.add_legend(ax, drawing.draw_variances(ax, values, model.embedding_.shape[1]))
        return ax
    next_value = float(values[-1] - model.eigengap_)
    drawing.add_legend(ax, drawing.draw_spectrum(ax, values, next_value))
    return ax


def dimensions(model: IKDR, axes: Any = None) -> Array:
    """Draw what each number of new features explains, if "auto" chose the number.

    The first panel has the share of y that the features explain, each row predicted by the others.
    The second one has the gain of log evidence per row over one feature fewer, beside the gain
    from which on a feature is taken.

    Parameters
    ----------
    model : SupervisedIKDR fitted with n_components="auto"
    axes : two Axes, optional

    Returns
    -------
    (2,) array of Axes.
    """
    check_is_fitted(model)
    path = getattr(model, "dimension_path_", ())
    if not path:
        raise ValueError(
            "the model has no `dimension_path_`: its fit tried no numbers of new features"
        )
    left, right = _panels(2, _IMAGE_WIDTH, axes)
    numbers, chosen = [each.q for each in path], len(model.components_)
    drawing.draw_dimension_shares(left, numbers, [each.explained for each in path], chosen)
    gains, needed = [each.gain for each in path], [each.needed_gain for each in path]
    entries = drawing.draw_dimension_gains(right, numbers, gains, needed, chosen)
    drawing.add_legend(right, entries)
    return np.array([left, right])


def shares(result: Intervals, *, top: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the largest shares of features in the space of the new ones, with their intervals.

    Features that stand clear of all others are blue.

    Parameters
    ----------
    result : Intervals
        The result of `ism_dask.intervals`.
    top : int, default 10
        Number of shares, largest first.
    ax : Axes, optional

    Returns
    -------
    The Axes.
    """
    _check_top(top)
    ax = _new_axes() if ax is None else ax
    largest = np.argsort(-result.shares, kind="stable")[:top]
    clear = min(len(result.separated), len(largest))
    intervals = np.array([result.shares, result.shares_low, result.shares_high])[:, largest]
    names = [result.feature_names[j] for j in largest]
    drawing.add_legend(ax, drawing.draw_shares(ax, names, intervals, clear))
    return ax


def response(
    model: IKDR,
    X: Any,
    y: Any,
    result: Intervals | None = None,
    *,
    axes: Any = None,
) -> Array:
    """Draw y along each new feature: the rows, and the mean of y with its 90% band.

    Classes are drawn as shares: of the rows around a place, how many are of each class. The mean is
    that of y along this feature alone, whatever the others are; where two features act only
    together, as in a product, each curve is flat, and `scatter` shows more.

    Parameters
    ----------
    model : fitted estimator
    X : (n, d) array, frame, Dask array or opened data set
    y : (n,) labels or numbers
        Rows without a value (NaN, None) are left out.
    result : Intervals, optional
        That of `ism_dask.intervals`: the ten largest weights of each new feature are
        drawn below, with their 90% intervals.
    axes : q Axes, or 2 q with a `result`, optional

    Returns
    -------
    (q,) array of Axes, or (2 q,) with a `result`: first those of y, then those of the weights.
    """
    check_is_fitted(model)
    Z, values = _drawn_rows(model, X, y)
    has_value = _with_value(values, model)
    Z, values = Z[has_value], values[has_value]
    q = Z.shape[1]
    panels = _panels(q if result is None else 2 * q, _BARS_WIDTH, axes, columns=q)
    classes, values = (None, values) if _are_numbers(values) else _classes(values)
    for ax, z, name in zip(panels[:q], Z.T, model.get_feature_names_out(), strict=True):
        entries = drawing.draw_response(ax, z, values, classes, (name, "y"))
        if classes is not None:
            columns = min(len(classes), _LEGEND_COLUMNS)
            drawing.add_legend(ax, entries, **_ABOVE, ncols=columns)
    if result is not None:
        for k, ax in enumerate(panels[q:]):
            weights = result.components[k]
            largest = np.argsort(-np.abs(weights), kind="stable")[:_TOP]
            ends = np.stack([result.components_low[k], result.components_high[k]])
            names = [result.feature_names[j] for j in largest]
            drawing.draw_weights(ax, names, weights[largest], ends[:, largest])
    return panels


def scatter(
    model: IKDR | ColoredMVU,
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
    columns = _two_of(features, model._n_features_out)
    Z, values = _drawn_rows(model, X, y)
    Z = Z[:, columns]
    ax = _new_axes() if ax is None else ax
    new_names = model.get_feature_names_out()
    axis_names = (str(new_names[columns[0]]), str(new_names[columns[1]]))
    if values is None:
        drawing.draw_points(ax, Z, axis_names)
    else:
        _draw_coloured(ax, Z, values, model, axis_names)
    return ax


def _drawn_rows(model: IKDR | ColoredMVU, X: Any, y: Any) -> tuple[Array, Any]:
    """Return the new features (m, q) of the rows to draw, and their y (m,), None without one."""
    projected = model.transform(X)
    n = len(projected)
    values = None if y is None else column_or_1d(target_as_array(y))
    check_consistent_length(projected, values)
    indices = np.arange(n)
    if n > _MAX_POINTS:
        indices = np.sort(np.random.default_rng(0).choice(n, _MAX_POINTS, replace=False))
    return _selected_rows(projected, indices), None if values is None else values[indices]


def _draw_images(panels: Array, weights: Array, shape: tuple[int, int]) -> None:
    d = weights.shape[1]
    if len(shape) != 2 or np.prod(shape) != d:
        raise ValueError(
            f"`image_shape` must be (height, width) with {d} pixels in all; got {shape!r}"
        )
    # One colour scale for all panels, so that their weights can be compared.
    largest = largest_weight(weights)
    for ax, row in zip(panels, weights, strict=True):
        image = drawing.draw_weight_image(ax, row, shape, largest)
    bar = panels[0].figure.colorbar(image, ax=list(panels), shrink=0.8)
    bar.set_label(drawing.WEIGHT_LABEL)


def _draw_coloured(
    ax: Axes, Z: Array, given: Array, model: IKDR | ColoredMVU, axis_names: tuple[str, str]
) -> None:
    """Draw rows (n, 2) in the colours of their values (n,); rows without a value are grey."""
    has_value = _with_value(given, model)
    values = given[has_value]
    entries = []
    if not has_value.all():
        entries += drawing.draw_unlabelled(ax, Z[~has_value])
    if _are_numbers(values):
        drawing.draw_numbers(ax, Z[has_value], values, "y", axis_names)
    else:
        names, codes = _classes(values)
        entries += drawing.draw_classes(ax, Z[has_value], codes, names, axis_names)
    if entries:
        drawing.add_legend(ax, entries, ncols=1 + (len(entries) > _MAX_CLASSES // 2))


def _with_value(given: Array, model: IKDR | ColoredMVU) -> Array:
    """Return which values (m,) are not missing."""
    has_value = np.asarray(~rows_without_score(given))
    if not _are_numbers(given[has_value]):
        has_value[has_value] = ~_unlabelled(given[has_value], model)
    return has_value


def _classes(values: Array) -> tuple[list[str], Array]:
    """Return the names of the classes, and the index (m,) of the class of each value."""
    classes, codes = np.unique(values, return_inverse=True)
    return [f"{each:g}" if values.dtype.kind == "f" else str(each) for each in classes], codes


def _are_numbers(values: Array) -> bool:
    """Return whether values (m,), none missing, are drawn as numbers and not as classes."""
    many = values.dtype.kind in "iuf" and len(np.unique(values)) > _MAX_CLASSES
    return many or is_continuous(values)


def _unlabelled(values: Array, model: IKDR | ColoredMVU) -> Array:
    """Return which values (m,) are -1 as scikit-learn's sign for no class, and not as a class."""
    is_class = values.dtype.kind not in "ifO" or -1 in getattr(model, "classes_", [-1])
    return np.zeros(len(values), dtype=bool) if is_class else np.asarray(values == -1)


def _history(model: IKDR) -> tuple[Sequence[Any], Stopping, str]:
    """Return the steps of a fit, its stopping rules, and the name of a step."""
    rounds: Sequence[Any] | None = getattr(model, "rounds_", None)
    if rounds is not None and model.plan.rounds is not None:
        return rounds, model.plan.rounds, "round"
    return model.history_, model.plan.iterations, "iteration"


def _names(model: IKDR, given: Sequence[str] | None) -> Sequence[str]:
    d = model.n_features_in_
    given = column_names(model) if given is None else given
    if len(given) != d:
        raise ValueError(f"`feature_names` must be {d} names, one a feature; got {len(given)}")
    return given


def _check_top(top: int) -> None:
    if not is_whole(top) or top < 1:
        raise ValueError(f"`top` must be a whole number from 1 up; got {top!r}")


def _two_of(features: Sequence[int], q: int) -> list[int]:
    chosen = list(features)
    if len(chosen) == 2 and all(is_whole(each) and 0 <= each < q for each in chosen):
        return chosen
    advice = "" if q > 1 else "; fit with `n_components` of 2 or more to draw two"
    raise ValueError(
        f"`features` must be two whole numbers from 0 to {q - 1}; got {features!r}{advice}"
    )


def _selected_rows(rows: Any, indices: Array) -> Array:
    """Return the rows with these indices of a frame, an array or a lazy array, in memory."""
    return np.asarray(getattr(rows, "iloc", rows)[indices])


def _panels(count: int, width: float, axes: Any, columns: int = _PANELS_PER_ROW) -> Array:
    if axes is None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 - takes a second to import

        columns = min(count, columns)
        size = (width * columns, 3.6 * -(-count // columns))
        figure, grid = plt.subplots(
            -(-count // columns), columns, figsize=size, layout="constrained", squeeze=False
        )
        for spare in grid.flat[count:]:
            figure.delaxes(spare)
        return np.asarray(grid.flat[:count])
    panels = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(panels) != count:
        raise ValueError(f"`axes` must be {count} Axes, one for each panel; got {len(panels)}")
    return panels


def _new_axes() -> Axes:
    import matplotlib.pyplot as plt  # noqa: PLC0415 - takes a second to import

    return plt.subplots(layout="constrained")[1]
