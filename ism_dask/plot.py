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
from ism_dask.estimators.colored_mvu import ColoredMVU
from ism_dask.estimators.input_rows import row_source
from ism_dask.gamma.row_values import is_missing, on_this_host, target_as_array
from ism_dask.gamma.target_input import is_continuous
from ism_dask.inference.intervals import Intervals
from ism_dask.pictures import drawing
from ism_dask.pictures.drawing import BLUE, DIVERGING, GREY, RED
from ism_dask.records.iteration import Stopping
from ism_dask.rows.raw import as_dense, is_row_source
from ism_dask.solvers import as_solver

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ism_dask.pictures.drawing import Entries

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
    W = model.components_
    panels = _panels(len(W), _BARS_WIDTH if image_shape is None else _IMAGE_WIDTH, axes)
    if image_shape is None:
        names = column_names(model) if feature_names is None else feature_names
        if len(names) != W.shape[1]:
            raise ValueError(
                f"`feature_names` must be {W.shape[1]} names, one a feature; got {len(names)}"
            )
        for ax, weights in zip(panels, W, strict=True):
            largest = _largest(weights, top)
            drawing.draw_weights(ax, [names[j] for j in largest], weights[largest])
    else:
        if len(image_shape) != 2 or np.prod(image_shape) != W.shape[1]:
            raise ValueError(
                f"`image_shape` must be (height, width) with {W.shape[1]} pixels in all; got "
                f"{image_shape!r}"
            )
        # One colour scale for all panels, so that their weights can be compared.
        strongest = drawing.largest_weight(W)
        for ax, weights in zip(panels, W, strict=True):
            pixels = weights.reshape(image_shape)
            image = ax.imshow(pixels, cmap=DIVERGING, vmin=-strongest, vmax=strongest)
            ax.set(xticks=[], yticks=[])
        bar = panels[0].figure.colorbar(image, ax=list(panels), shrink=0.8)
        bar.set_label(drawing.WEIGHT_LABEL)
    new_names = model.get_feature_names_out()
    for ax, name, value in zip(panels, new_names, model.eigenvalues_, strict=True):
        ax.set_title(f"{name}, eigenvalue {value:.3g}")
    return panels


def convergence(model: IKDR, ax: Axes | None = None) -> Array:
    """Draw the objective and the measure of convergence by iteration.

    The measure is the residual of W or, with a number as `tol`, the change of the eigenvalues. For
    clusterers both curves are by round, and the measure is the `movement` of a `Round`. Returns two
    Axes: of the objective, and of the measure on a logarithmic axis at the right.
    """
    check_is_fitted(model)
    model = model.as_fitted()
    ax = _new_axes() if ax is None else ax
    rounds, steps = getattr(model, "rounds_", None), model.history_
    stopping: Stopping = as_solver(model.solver)
    unit = "iteration"
    if rounds is not None and model.stopping_of_rounds is not None:
        steps, stopping, unit = rounds, model.stopping_of_rounds, "round"
    numbers = range(1, len(steps) + 1)
    drawing.draw_objective(ax, numbers, [each.objective for each in steps], unit)
    ax.yaxis.label.set_color(BLUE)
    right = ax.twinx()
    measured, limit = [stopping.measured(each) for each in steps], stopping.limit_of(steps[-1])
    drawing.draw_measure(right, numbers, measured, unit, measure=stopping.measure, limit=limit)
    right.set_ylabel(f"{right.get_ylabel()} (dotted: tolerance)", color=RED)
    return np.array([ax, right])


def spectrum(model: IKDR | ColoredMVU, ax: Axes | None = None) -> Axes:
    """Draw the eigenvalues of the new features, the next eigenvalue of Phi, and the eigengap.

    Of a `ColoredMVU`, it draws the eigenvalues of K: those of the coordinates, and the others.
    """
    check_is_fitted(model)
    ax = _new_axes() if ax is None else ax
    values = model.eigenvalues_
    if isinstance(model, ColoredMVU):
        q, numbers = model.embedding_.shape[1], range(1, len(values) + 1)
        label = f"coordinates: {values[:q].sum() / values.sum():.0%} of the variance"
        ax.plot(numbers[:q], values[:q], "o", color=BLUE, label=label)
        ax.plot(numbers[q:], values[q:], "o", color=GREY, mfc="none", label="the others")
        drawing.name_whole_numbers(ax, "axis of the unfolding", "eigenvalue of K", numbers)
    else:
        drawing.draw_spectrum(ax, values, float(values[-1] - model.eigengap_))
    drawing.add_legend(ax, drawing.labelled(ax))
    return ax


def shares(result: Intervals, *, top: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the largest shares of features in the space of the new ones, with their intervals.

    The `result` is that of `ism_dask.intervals`, and `top` the number of shares. Features that
    stand clear of all others are blue.
    """
    largest = _largest(result.shares, top)
    ax = _new_axes() if ax is None else ax
    clear = min(len(result.separated), len(largest))
    intervals = np.array([result.shares, result.shares_low, result.shares_high])[:, largest]
    names = [result.feature_names[j] for j in largest]
    # The smallest shares, at the bottom, leave room on their right.
    drawing.add_legend(ax, drawing.draw_shares(ax, names, intervals, clear), loc="lower right")
    return ax


def row(model: IKDR, X: Any, number: int = 0, *, top: int = 10, axes: Any = None) -> Array:
    """Draw why a row has its new features: what its columns add to each, the largest as bars.

    The last bar is of all other columns, so that bars sum to the new feature in the title. Names
    begin with the values of the row.

    Parameters
    ----------
    model : fitted estimator
    X : (n, d) array, frame, Dask array or opened data set; or one row (d,)
    number : int, default 0
        Which row of X, from 0.
    top : int, default 10
        Number of columns of each new feature, largest contribution first.
    axes : q Axes, optional

    Returns
    -------
    (q,) array of Axes.
    """
    check_is_fitted(model)
    rows = _one_row(X, number)
    added = np.asarray(on_this_host(model.explain(rows)))[0]
    values = as_dense(on_this_host(rows))[0]
    panels = _panels(added.shape[1], _BARS_WIDTH, axes)
    names = [f"{x:.4g} = {name}" for x, name in zip(values, column_names(model), strict=True)]
    for ax, each, title in zip(panels, added.T, model.get_feature_names_out(), strict=True):
        largest = _largest(each, top)
        drawn, bars = [names[j] for j in largest], each[largest]
        if others := len(each) - len(largest):
            drawn.append(f"{others} others")
            bars = np.append(bars, each.sum() - bars.sum())
        drawing.draw_weights(ax, drawn, bars)
        ax.set(title=f"{title} = {each.sum():.3g}", xlabel="what the column adds to it")
    return panels


def response(
    model: IKDR, X: Any, y: Any, result: Intervals | None = None, *, axes: Any = None
) -> Array:
    """Draw y along each new feature: up to 5,000 rows, and the mean of y with its 90% band.

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
    Z, values, has_value = _drawn_rows(model, X, y)
    Z, values = Z[has_value], values[has_value]
    if not len(Z):
        raise ValueError("`y` has no value in the rows of X; give that of some")
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
            largest = _largest(weights, _TOP)
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
    columns, q = list(features), model._n_features_out
    if len(columns) != 2 or not all(is_whole(each) and 0 <= each < q for each in columns):
        advice = "" if q > 1 else "; fit with `n_components` of 2 or more to draw two"
        raise ValueError(
            f"`features` must be two whole numbers from 0 to {q - 1}; got {features!r}{advice}"
        )
    Z, values, has_value = _drawn_rows(model, X, y)
    Z = Z[:, columns]
    ax = _new_axes() if ax is None else ax
    first, second = (str(model.get_feature_names_out()[k]) for k in columns)
    if values is None:
        ax.scatter(Z[:, 0], Z[:, 1], s=12, color=BLUE, alpha=0.7, lw=0)
        drawing.name_axes(ax, (first, second))
        return ax
    entries: Entries = []
    if not has_value.all():
        x, y = Z[~has_value].T
        grey = ax.scatter(x, y, s=8, color=GREY, alpha=0.5, lw=0)
        entries.append((grey, "unknown"))
    Z, values = Z[has_value], values[has_value]
    if _are_numbers(values):
        drawing.draw_numbers(ax, Z, values, "y", (first, second))
    else:
        names, codes = _classes(values)
        entries += drawing.draw_classes(ax, Z, codes, names, (first, second))
    if entries:
        drawing.add_legend(ax, entries, ncols=1 + (len(entries) > _MAX_CLASSES // 2))
    return ax


def _one_row(X: Any, number: int) -> Any:
    """Return row `number` of X as a frame or an array (1, d); X may be that row alone (d,)."""
    X = row_source(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) == 1:
        X = X.to_frame().T if hasattr(X, "to_frame") else X[None, :]
    n = X.shape[0]
    if not is_whole(number) or not 0 <= number < n:
        raise ValueError(f"`number` must be one of the {n:,} rows of X, from 0; got {number!r}")
    if is_row_source(X):
        return X.read(number, number + 1)
    return getattr(X, "iloc", X)[number : number + 1]


def _drawn_rows(model: IKDR | ColoredMVU, X: Any, y: Any) -> tuple[Array, Any, Array]:
    """Return new features (m, q) of the rows to draw, their y (m,) or None, and which y are values.

    Missing ones are not, nor is -1 as scikit-learn's sign for no class.
    """
    Z = model.transform(X)
    values = None if y is None else column_or_1d(target_as_array(y))
    check_consistent_length(Z, values)
    rows = np.arange(len(Z))
    if len(rows) > _MAX_POINTS:
        rows = np.sort(np.random.default_rng(0).choice(len(Z), _MAX_POINTS, replace=False))
    # Of a frame or a lazy array, these rows alone come into memory.
    Z = np.asarray(getattr(Z, "iloc", Z)[rows])
    if values is None:
        return Z, None, np.zeros(len(Z), dtype=bool)
    values = values[rows]
    has_value = np.asarray(~is_missing(values))
    present = values[has_value]
    is_class = values.dtype.kind not in "ifO" or -1 in getattr(model, "classes_", [-1])
    if not is_class and not _are_numbers(present):
        has_value[has_value] = present != -1
    return Z, values, has_value


def _classes(values: Array) -> tuple[list[str], Array]:
    """Return the names of the classes, and the index (m,) of the class of each value."""
    classes, codes = np.unique(values, return_inverse=True)
    return [f"{each:g}" if values.dtype.kind == "f" else str(each) for each in classes], codes


def _are_numbers(values: Array) -> bool:
    """Return whether values (m,), none missing, are drawn as numbers and not as classes."""
    many = values.dtype.kind in "iuf" and len(np.unique(values)) > _MAX_CLASSES
    return many or is_continuous(values)


def _largest(weights: Array, top: int) -> Array:
    """Return the indices of the `top` largest absolute values of weights (d,), in their order."""
    if not is_whole(top) or top < 1:
        raise ValueError(f"`top` must be a whole number from 1 up; got {top!r}")
    return np.argsort(-np.abs(weights), kind="stable")[:top]


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
