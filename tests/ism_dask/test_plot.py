"""What the pictures show."""

import dask.array as da
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from models import StoredRows, hsic_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.datasets import load_wine

from ism_dask.solvers import ISM

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import same_color, to_hex

from ism_dask import (
    ColoredMVU,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    UnsupervisedIKDR,
    intervals,
    plot,
)
from ism_dask.kernels import Gaussian
from ism_dask.pictures import drawing

X, Y = load_wine(return_X_y=True, as_frame=True)
NAMELESS = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


@pytest.fixture(scope="module")
def fitted():
    return hsic_model(2, kernel=Gaussian("median"), solver=ISM(tol=1e-6)).fit(X, Y)


@pytest.fixture(autouse=True)
def _closed():
    settings = mpl.rcParams.copy()
    yield
    assert mpl.rcParams == settings
    plt.close("all")


def names_in(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def points(ax):
    return np.concatenate([each.get_offsets() for each in ax.collections])


def test_bars_are_the_largest_weights_under_their_names(fitted):
    panels = plot.components(fitted, top=4)
    assert panels.shape == (2,)
    for k, ax in enumerate(panels):
        weights = pd.Series(fitted.components_[k], X.columns)
        largest = weights.sort_values(key=abs, ascending=False).head(4)
        assert [label.get_text() for label in ax.get_yticklabels()] == list(largest.index)
        assert_allclose([bar.get_width() for bar in ax.patches], largest)
        first, *_ = colours = [bar.get_facecolor() for bar in ax.patches]
        assert [same_color(each, first) for each in colours] == list(largest > 0)
        assert ax.get_title() == f"supervisedikdr{k}, eigenvalue {fitted.eigenvalues_[k]:.3g}"
        assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the largest at the top


def test_images_are_centred_on_zero():
    rows = np.random.default_rng(0).normal(size=(60, 12))
    model = hsic_model(5).fit(rows, rows[:, 0] > 0)
    panels = plot.components(model, image_shape=(3, 4))
    assert len(panels) == 5
    most = np.abs(model.components_).max()
    for row, ax in zip(model.components_, panels, strict=True):
        (image,) = ax.images
        assert_allclose(image.get_array(), row.reshape(3, 4))
        assert image.get_clim() == (-most, most)
    assert len(panels[0].figure.axes) == 6  # with one scale for all


def test_convergence_is_the_history(fitted):
    left, right = plot.convergence(fitted)
    (objective,) = left.lines
    assert list(objective.get_xdata()) == [record.iteration for record in fitted.history_]
    assert list(objective.get_ydata()) == [record.objective for record in fitted.history_]
    change, tolerance = right.lines
    assert list(change.get_ydata()) == [record.change for record in fitted.history_]
    assert set(tolerance.get_ydata()) == {1e-6}
    assert right.get_yscale() == "log"
    # A fit that needs no iterations has a residual, or a change of 0, or of rounding: 0 has no
    # place on a logarithmic axis.
    closed = hsic_model(2, kernel="linear").fit(X, Y)
    _, right = plot.convergence(closed, plt.subplots()[1])
    assert right.lines[0].get_ydata()[-1] < 1e-10
    assert right.get_ylabel().startswith("residual of W")
    published = hsic_model(2, kernel="linear", solver=ISM(tol=0.01)).fit(X, Y)
    _, right = plot.convergence(published)
    label = right.get_ylabel()
    _, right = plot.convergence(published.set_params(solver="ism"))
    assert right.get_ylabel() == label  # that of the fit
    assert not right.lines[0].get_ydata()[-1] > 1e-10
    assert right.get_ylabel().startswith("change of the eigenvalues")
    right.figure.canvas.draw()


def test_the_spectrum_shows_the_gap(fitted):
    ax = plot.spectrum(fitted)
    chosen, following = ax.lines
    assert_allclose(chosen.get_ydata(), fitted.eigenvalues_)
    assert_allclose(following.get_xydata(), [[3, fitted.eigenvalues_[-1] - fitted.eigengap_]])
    (gap,) = ax.collections
    assert_allclose(np.ptp(gap.get_segments()[0][:, 1]), fitted.eigengap_)
    assert names_in(ax) == ["new features", "the next one", f"eigengap {fitted.eigengap_:.4g}"]


def test_classes_get_a_legend_and_a_look_each(fitted):
    Z = fitted.transform(X)
    ax = plot.scatter(fitted, X, Y)
    assert names_in(ax) == ["0", "1", "2"]
    assert len({to_hex(dots.get_facecolor()[0]) for dots in ax.collections}) == 3
    for label, dots in enumerate(ax.collections):
        assert_allclose(dots.get_offsets(), Z[label == Y])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("supervisedikdr0", "supervisedikdr1")
    # More classes than colours differ by marker.
    ax = plot.scatter(fitted, X, [f"lot {number % 12:02d}" for number in range(len(X))])
    assert names_in(ax) == [f"lot {number:02d}" for number in range(12)]
    colours = [to_hex(dots.get_facecolor()[0]) for dots in ax.collections]
    markers = [dots.get_paths()[0].vertices.tobytes() for dots in ax.collections]
    assert len(set(zip(colours, markers, strict=True))) == 12


def test_rows_of_which_nothing_is_known_are_grey(fitted):
    ax = plot.scatter(fitted, X, Y.astype(object).where(Y.index % 3 > 0, pd.NA))
    assert names_in(ax) == ["unknown", "0", "1", "2"]
    grey = ax.collections[0]
    assert same_color(grey.get_facecolor()[0][:3], "#999999")
    assert_allclose(grey.get_offsets(), fitted.transform(X)[Y.index % 3 == 0])
    # -1 is a class where the model has it.
    signs = np.where(Y > 0, 1, -1)
    known = SemiSupervisedIKDR(3, 2).fit(X, np.where(Y.index % 4, -1, Y))
    assert names_in(plot.scatter(known, X, np.where(Y.index % 2, -1, Y)))[0] == "unknown"
    assert names_in(plot.scatter(hsic_model(2).fit(X, signs), X, signs)) == ["-1", "1"]


def test_numbers_get_a_colour_bar(fitted):
    numbers = X["alcohol"].where(X.index > 9)
    figure, ax = plt.subplots()
    assert plot.scatter(fitted, X, numbers, features=(1, 0), ax=ax) is ax
    grey, dots = ax.collections
    assert len(grey.get_offsets()) == 10
    assert_allclose(dots.get_array(), numbers[10:])
    assert_allclose(dots.get_offsets(), fitted.transform(X)[10:, ::-1])
    assert len(figure.axes) == 2
    assert names_in(ax) == ["unknown"]


@NAMELESS
@pytest.mark.parametrize("lazy", [False, True])
def test_many_rows_are_a_choice_that_stays(fitted, lazy):
    many = pd.concat([X] * 30)
    rows = da.from_array(many.to_numpy(), chunks=(1000, 13)) if lazy else many
    first, again = (plot.scatter(fitted, rows, np.tile(Y, 30)) for _ in range(2))
    assert points(first).shape == (5000, 2)
    assert_array_equal(points(first), points(again))
    Z = fitted.transform(X)
    for label, dots in enumerate(first.collections):
        places = {tuple(row) for row in Z[label == Y].round(6)}
        assert {tuple(row) for row in dots.get_offsets().round(6)} == places


def test_clusterers_and_unfoldings_are_drawn_too():
    model = UnsupervisedIKDR(3)
    model.set_output(transform="pandas").fit(X, Y)
    left, right = plot.convergence(model)
    assert list(left.lines[0].get_ydata()) == [each.objective for each in model.rounds_]
    assert list(right.lines[0].get_ydata()) == [each.movement for each in model.rounds_]
    assert left.get_xlabel() == "round"
    assert_allclose(plot.spectrum(model).lines[0].get_ydata(), model.eigenvalues_)
    assert len(points(plot.scatter(model, X, model.labels_))) == len(X)
    model = ColoredMVU().fit(X, Y)
    drawn = points(plot.scatter(model, X, Y))
    assert_allclose(np.sort(drawn[:, 0]), np.sort(model.embedding_[:, 0]))
    variances = plot.spectrum(model)
    heights = np.concatenate([line.get_ydata() for line in variances.lines])
    assert_array_equal(heights, model.eigenvalues_)
    assert "96% of the variance" in names_in(variances)[0]


def test_a_response_is_the_mean_of_y_along_each_feature(fitted):
    names = ["low", "middle", "high"]
    panels = plot.response(fitted, X, [names[each] for each in Y])
    assert [ax.get_xlabel() for ax in panels] == list(fitted.get_feature_names_out())
    assert names_in(panels[0]) == sorted(names)
    shares = np.array([line.get_ydata() for line in panels[1].lines])
    assert_allclose(shares.sum(axis=0), 1)
    places = panels[1].lines[0].get_xdata()
    nearest = np.abs(places[:, None] - fitted.transform(X)[:, 1]).argmin(axis=1)
    alone = shares.max(axis=0) > 0.99
    assert alone.any()
    drawn = [names_in(panels[1])[each] for each in shares.argmax(axis=0)[alone]]
    assert drawn == [names[each] for each in Y.to_numpy()[nearest[alone]]]


VALUES = X.to_numpy()
LAZY = da.from_array(VALUES, chunks=(50, 5))


@NAMELESS
@pytest.mark.parametrize(
    "row",
    [(X, 17), (X.iloc[17],), (X[17:18],), (VALUES, 17), (VALUES[17].tolist(),)]
    + [(rows, 17) for rows in (csr_array(VALUES), LAZY, StoredRows(VALUES, 50))],
)
def test_the_bars_of_a_row_sum_to_its_new_features(fitted, row):
    panels, added = plot.row(fitted, *row, top=4), fitted.explain(X)[17]
    for ax, each, z in zip(panels, added.T, fitted.transform(X)[17], strict=True):
        largest = np.argsort(-np.abs(each))[:4]
        widths = [bar.get_width() for bar in ax.patches]
        assert_allclose(widths, [*each[largest], z - each[largest].sum()])
        drawn = [label.get_text() for label in ax.get_yticklabels()]
        names = [f"{X.iloc[17, j]:.4g} = {X.columns[j]}" for j in largest]
        assert drawn == [*map(drawing.short_name, names), "9 others"]
        assert ax.get_title().endswith(f"= {z:.3g}")
    assert len(plot.row(fitted, *row, top=13, axes=panels)[0].patches) == 5 + 13


def _ends(ax):
    """Return both ends of the lines across a picture."""
    return np.concatenate([each.get_segments() for each in ax.collections])[:, :, 0].T


def test_a_response_has_the_weights_and_their_intervals_below():
    fitted = PredictiveIKDR(2, kernel="linear").fit(X, Y)
    result = intervals(fitted, X, Y)
    panels = plot.response(fitted, X, Y, result)
    assert len(panels) == 4
    most = np.argsort(-np.abs(result.components[1]))[:10]
    ends = result.components_low[1, most], result.components_high[1, most]
    assert_allclose(_ends(panels[3]), ends)
    with pytest.raises(ValueError, match=r"`axes` must be 4 Axes.*got 2"):
        plot.response(fitted, X, Y, result, axes=panels[:2])
    shares, most = plot.shares(result, top=5), np.argsort(-result.shares)[:5]
    first = shares.get_yticklabels()[0].get_text()
    assert first == drawing.short_name(result.feature_names[most[0]])
    assert_allclose(_ends(shares), (result.shares_low[most], result.shares_high[most]))
    with pytest.raises(ValueError, match="`top` must be a whole number"):
        plot.shares(result, top=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: plot.components(m, image_shape=(3, 4)), r"`image_shape`.*13 pixels.*\(3, 4\)"),
        (lambda m: plot.components(m, feature_names=["a"]), "`feature_names` must be 13.*got 1"),
        (lambda m: plot.components(m, top=0), "`top`.*got 0"),
        (lambda m: plot.components(m, axes=plt.subplots()[1]), "`axes` must be 2 Axes.*got 1"),
        (lambda m: plot.scatter(m, X, features=(0, 2)), r"`features`.*0 to 1; got \(0, 2\)"),
        (lambda m: plot.scatter(m, X, Y[:9]), r"inconsistent numbers of samples: \[178, 9\]"),
        (lambda _: plot.scatter(hsic_model(1).fit(X, Y), X), "`n_components` of 2 or more"),
        (lambda _: plot.components(PredictiveIKDR()), "not fitted"),
        (lambda _: plot.row(PredictiveIKDR(), X), "not fitted"),
        (lambda m: plot.row(m, X, 178), "`number` must be one of the 178 rows of X.*got 178"),
        (lambda m: plot.row(m, X, 1.0), "`number`.*got 1.0"),
        (lambda m: plot.row(m, X[:0]), "one of the 0 rows"),
        (lambda m: plot.response(m, X, np.full(178, np.nan)), "`y` has no value in the rows of X"),
        (lambda m: plot.row(m, X, top=0), "`top`.*got 0"),
    ],
)
def test_errors_say_what_was_expected(fitted, call, message):
    with pytest.raises(ValueError, match=message):
        call(fitted)


def test_figures_are_saved_whole_with_plain_numbers_and_names_that_are_no_formulas():
    # J is some millions, which matplotlib would write as a factor beside the axis.
    names = [f"${j}_$ \\$ x^" for j in range(13)]
    model = hsic_model(2, kernel="polynomial").fit(X, Y)
    axes = [*plot.components(model, feature_names=names, top=13), *plot.convergence(model)]
    assert sorted(label.get_text() for label in axes[0].get_yticklabels()) == sorted(names)
    for numbers in (Y, X["proline"] * 1e7, [f"_$a^{number % 3}$ $" for number in range(len(X))]):
        axes += [plot.scatter(model, X, numbers), *plot.response(model, X, numbers)]
    labels = [*axes[0].get_yticklabels(), *axes[-3].get_legend().get_texts()]
    assert [each.get_text() for each in labels[13:]] == ["_$a^0$ $", "_$a^1$ $", "_$a^2$ $"]
    assert not any(text.get_parse_math() for text in labels)
    for figure in {ax.figure for ax in [*axes, plot.spectrum(model)]}:
        figure.canvas.draw()
        renderer, page = figure.canvas.get_renderer(), figure.bbox
        for ax in figure.axes:
            drawn = ax.get_tightbbox(renderer)
            assert min(drawn.x0, drawn.y0) >= -1
            assert drawn.x1 <= page.x1 + 1
            assert drawn.y1 <= page.y1 + 1
            texts = [axis.get_offset_text().get_text() for axis in (ax.xaxis, ax.yaxis)]
            assert texts == ["", ""]
