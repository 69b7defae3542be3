"""How many features, which width and which start a fit begins with; whitened rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from definition import dense_gamma
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from ism_dask import ComponentsWarning, SupervisedIKDR, hsic
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.estimators.row_order import row_order, sampling_order
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import DistanceKernel, Gaussian, Linear, Multiquadric, Polynomial
from ism_dask.linalg.eigen import largest_pairs
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.solvers.starts import (
    SampledRows,
    _gradient_moments,
    candidate_starts,
    directional_regression,
)
from ism_dask.solvers.width_selection import neighbour_losses, useful_features

WINE, CULTIVAR = load_wine(return_X_y=True)
N, D = 300, 6


def _rows(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, D))


@cache
def _of_square(seed=0):
    """Rows whose first column tells y by its square alone: no mean of a class differs."""
    rng, X = _rows(seed)
    return X, X[:, 0] ** 2 + 0.2 * rng.normal(size=len(X))


def _evidence(X, y, target="auto"):
    known = target_dependence(y, target)
    classes = None if known.classes is None else known.facts[:, 0]
    return SampledRows.of(scale(X), known.gamma.factor(known.facts), classes)


def _away(W, *axes):
    return subspace_sine(np.eye(D)[:, list(axes)], W)


def _fit(X, y, *given, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SupervisedIKDR(*given, **parameters).fit(X, y)


# Starts.


def test_directional_regression_sees_variances_that_differ():
    assert _away(directional_regression(_evidence(*_of_square()), 1), 0) < 0.15
    rng, X = _rows(1)
    y = rng.integers(2, size=N)
    X[y == 1, 2] *= 3.0
    assert _away(directional_regression(_evidence(X, y), 1), 2) < 0.15


@pytest.mark.parametrize("name", ["gradient", "narrow gradient"])
def test_gradients_see_a_direction_without_a_line(name):
    rng, X = _rows(2)
    y = np.cos(2 * X[:, 1]) + 0.1 * rng.normal(size=N)
    assert _away(candidate_starts(_evidence(X, y), 1)[name], 1) < 0.35


@pytest.mark.parametrize("seed", range(3))
def test_gradients_in_fewer_directions_see_more(seed):
    # Two arms of a spiral: in all columns at once their gradients drown in the noise of the rest.
    rng = np.random.default_rng(seed)
    angle, y = rng.uniform(0.25, 1.0, 600) * 2 * np.pi, rng.integers(2, size=600)
    arms = angle * np.array([np.cos(angle + np.pi * y), np.sin(angle + np.pi * y)])
    X = np.column_stack([arms.T, rng.normal(size=(600, 18))])
    evidence = _evidence(X, y)
    truth = np.eye(20)[:, :2]
    W = candidate_starts(evidence, 2)["narrow gradient"]
    at_once = largest_pairs(_gradient_moments(evidence.X, evidence.U, 0.5, 1e-4), 2)[1]
    assert subspace_sine(truth, W) < 0.8 * subspace_sine(truth, at_once)


@pytest.mark.parametrize("q", [1, 2, 5])
def test_starts_are_orthonormal(q):
    for evidence in (_evidence(*_of_square()), _evidence(WINE, CULTIVAR)):
        for name, W in candidate_starts(evidence, q).items():
            assert W.shape == (evidence.X.shape[1], q)
            np.testing.assert_allclose(W.T @ W, np.eye(q), atol=1e-10, err_msg=name)


def test_what_classes_are_called_decides_nothing():
    # Which rows are held out may decide a close choice.
    plain = _fit(WINE, CULTIVAR, 2)
    for names in (["c", "b", "a"], ["barolo", "grignolino", "barbera"]):
        other = _fit(WINE, np.array(names)[CULTIVAR], 2)
        np.testing.assert_allclose(other.components_, plain.components_, atol=1e-7)
        assert [t.width for t in other.selection_] == [t.width for t in plain.selection_]


# What neighbours tell.


def test_losses_are_the_squared_errors_of_the_ten_nearest_others():
    X, y = _of_square()
    evidence = _evidence(X[:60], y[:60])
    W = np.eye(D)[:, :2]
    Z = evidence.X @ W
    expected = []
    for i, row in enumerate(Z):
        apart = np.linalg.norm(Z - row, axis=1)
        apart[i] = np.inf
        nearest = np.argsort(apart)[:10]
        expected.append(((evidence.U[i] - evidence.U[nearest].mean(axis=0)) ** 2).sum())
    np.testing.assert_allclose(neighbour_losses(evidence, W), expected, rtol=1e-10)


def test_features_beyond_those_that_tell_y_are_of_no_use():
    assert useful_features(_evidence(*_of_square()), np.eye(D)[:, :3]) == 1


# What a selection tries.


def test_trials_are_sorted_and_measured_against_the_width_of_the_kernel():
    X, y = _of_square()
    model = _fit(X, y, 1)
    gains = [trial.gain for trial in model.selection_]
    assert gains == sorted(gains, reverse=True)
    own = [trial for trial in model.selection_ if trial.width == 1.0]
    reference = min(own, key=lambda trial: trial.losses.mean())
    assert reference.gain == 0
    spread = reference.losses.mean() / (1 - reference.explained)
    for trial in model.selection_:
        assert trial.explained == pytest.approx(1 - trial.losses.mean() / spread)
        if trial.width == 1.0:  # of others held-out rows correct it
            assert trial.gain == pytest.approx(trial.explained - reference.explained)
        np.testing.assert_allclose(trial.W.T @ trial.W, np.eye(1), atol=1e-8)
    root = Gaussian("root").resolve(scale(X), 1 / D).sigma
    assert model.kernel_.sigma == pytest.approx(root * model.selection_[0].width)
    assert _away(model.components_.T, 0) < 0.1


def test_a_start_finds_what_the_spectral_one_cannot():
    _, X = _rows(0)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    assert _away(_fit(X, y, 2).components_.T, 0, 1) < 0.2


def test_there_is_nothing_to_select_without_a_width_or_where_it_is_given():
    for kernel in (Linear(), Polynomial(2), Gaussian(2.0), Gaussian("median"), Multiquadric()):
        assert _fit(WINE, CULTIVAR, 2, kernel=kernel).selection_ == ()
    assert _fit(WINE, CULTIVAR, 2, selection=None).selection_ == ()
    assert _fit(WINE[::12], CULTIVAR[::12], 2).selection_ == ()
    widths = {trial.width for trial in _fit(WINE, CULTIVAR, 2).selection_}
    assert widths == {2.0, 1.0, 0.5, 0.25}
    widths = {trial.width for trial in _fit(WINE, CULTIVAR, 2, kernel="distance").selection_}
    assert widths == {1.0}


def test_a_selection_repeats_and_takes_rows_in_any_order():
    order = np.random.default_rng(0).permutation(len(WINE))
    first, again, other = (
        _fit(WINE[rows], CULTIVAR[rows], 2) for rows in (slice(None), slice(None), order)
    )
    for model in (again, other):
        np.testing.assert_array_equal(model.components_, first.components_)
        table = [(trial.width, trial.start, trial.gain) for trial in model.selection_]
        assert table == [(trial.width, trial.start, trial.gain) for trial in first.selection_]


def test_folds_have_all_classes_on_either_side():
    from ism_dask.solvers.width_selection import _folds

    y = np.repeat([0, 1, 2], [150, 20, 8])
    evidence = _evidence(WINE, y)
    seen = []
    for train, test in _folds(evidence, 0):
        assert set(y[train]) == set(y[test]) == {0, 1, 2}
        np.testing.assert_array_equal(np.sort(np.append(train, test)), np.arange(len(y)))
        seen.extend(test)
    assert sorted(seen) == list(range(len(y)))


# How many features.


def test_one_index_and_two_are_seen():
    rng, X = _rows(6)
    noise = 0.1 * rng.normal(size=N)
    one = _fit(X, np.sin(X[:, 0] + X[:, 1]) + noise)
    assert one.components_.shape == (1, D)
    both = np.array([[1.0, 1.0, 0, 0, 0, 0]]).T / np.sqrt(2)
    assert subspace_sine(both, one.components_.T) < 0.1
    two = _fit(X, X[:, 0] / (0.5 + (X[:, 1] + 1.5) ** 2) + noise)
    assert two.components_.shape == (2, D)
    assert _away(two.components_.T, 0, 1) < 0.3


def test_classes_have_as_many_features_as_held_out_rows_confirm():
    wine = _fit(WINE, CULTIVAR, "auto")
    assert wine.components_.shape == (2, 13)  # a third one explains no more
    assert [each.q for each in wine.dimension_path_] == [1, 2, 3]
    assert [each.explains_more for each in wine.dimension_path_] == [True, True, False]
    _, X = _rows(0)
    both = _fit(X, (X[:, 0] * X[:, 1] > 0).astype(int), max_iter=1)  # two classes, two features
    assert both.components_.shape == (2, D)
    bands = _fit(X, np.digitize(X[:, 0], [-0.5, 0.5]), max_iter=1)  # three classes, one feature
    assert bands.components_.shape == (1, D)
    assert len(bands.dimension_path_) == 2


def test_trials_of_dimensions_are_what_their_definitions_say():
    model = _fit(*_of_square(), max_iter=1)
    path = model.dimension_path_
    assert path[0].explained == model.selection_[0].explained  # q = 1 was chosen
    assert path[0].gain == pytest.approx(path[0].explained)  # the mean explains nothing
    for fewer, more in pairwise(path):
        assert more.gain == pytest.approx(more.explained - fewer.explained)
        assert more.heldout_gain == pytest.approx(more.heldout_explained - fewer.heldout_explained)
        assert more.heldout_accuracy is None


def test_noise_has_one_feature_and_advice():
    rng, X = _rows(5, 200)
    with pytest.warns(ComponentsWarning, match="held-out rows explain nothing of y .*dependence_t"):
        model = SupervisedIKDR(max_iter=1000).fit(X, rng.integers(0, 2, len(X)))
    assert model.components_.shape == (1, D)
    assert "explain nothing" in model.components_advice_


def test_nothing_is_tried_where_nothing_could_be_chosen():
    for parameters in ({"selection": None}, {"kernel": Gaussian("median")}, {"n_components": 2}):
        model = _fit(WINE, CULTIVAR, **parameters)
        assert (model.components_.shape, model.dimension_path_) == ((2, 13), ())
    _, X = _rows(0, 160)
    many = _fit(np.repeat(X, 2, axis=1) + X[:, [0] * 12], np.arange(160) % 8, max_iter=1)
    assert len(many.components_) < 8
    assert many.dimension_path_ == ()


def test_a_warm_start_keeps_the_trials_of_dimensions():
    model = _fit(WINE, CULTIVAR, warm_start=True)
    path = model.dimension_path_
    assert model.fit(WINE, CULTIVAR).dimension_path_ is path


# Whitened rows.


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_whitened_features_are_uncorrelated(kernel):
    rng, X = _rows(7)
    X = X @ rng.normal(size=(D, D))
    y = np.digitize(X[:, 0], [-1, 1])
    model = _fit(X, y, 2, kernel=kernel, whiten=True)
    Z = model.transform(X)
    np.testing.assert_allclose(Z, (X - model.mean_) / model.scale_ @ model.components_.T)
    sigma = np.corrcoef(X.T)
    np.testing.assert_allclose(Z.T @ Z / N, model.components_ @ sigma @ model.components_.T)
    # But for the ridge of a thousandth of the mean eigenvalue, which is 1.
    ridge = model.components_ @ model.components_.T * 1e-3
    np.testing.assert_allclose(Z.T @ Z / N + ridge, np.eye(2), atol=1e-8)
    assert hsic(Z, y, kernel=model.kernel_) * (N - 1) ** 2 == pytest.approx(model.objective_)


def test_whitened_fits_do_not_hang_on_how_columns_are_mixed():
    rng, X = _rows(8)
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=N), [-0.5, 0.5])
    mixed = X @ (np.eye(D) + 0.4 * rng.normal(size=(D, D)))
    given = {"kernel": Gaussian(1.0), "whiten": True}
    one, other = (_fit(rows, y, 1, **given).transform(rows) for rows in (X, mixed))
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) > 0.999


# The distance kernel.


def _dcov(Z, y):
    """Return n^2 times the squared distance covariance, of doubly centred distances."""

    def centred(points):
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        apart = apart - apart.mean(axis=0)
        return apart - apart.mean(axis=1)[:, None]

    return (centred(Z) * centred(y)).sum()


def test_j_of_the_distance_kernel_is_the_distance_covariance():
    """Of classes the distance between rows is 0 or 1: one less what `Y Y^T` has."""
    labels = np.eye(3)[CULTIVAR] / np.sqrt(2)
    model = _fit(WINE, CULTIVAR, 2, kernel="distance")
    expected = _dcov(model.transform(WINE), labels)
    # The offset is a fiftieth of the distances.
    assert model.objective_ == pytest.approx(expected, rel=2e-3)
    small = DistanceKernel(1e-4)
    exact = hsic(model.transform(WINE), CULTIVAR, kernel=small) * (len(WINE) - 1) ** 2
    assert exact == pytest.approx(expected, rel=1e-6)


def test_j_of_the_distance_kernel_by_its_definition_for_numbers():
    X, y = _of_square()
    X, y = X[:80], y[:80]
    model = _fit(X, y, 1, kernel="distance")
    Z = model.transform(X)[:, 0]
    beta = np.subtract.outer(Z, Z) ** 2
    gamma = dense_gamma(target_dependence(y))
    expected = -(gamma * np.sqrt(beta + model.kernel_.offset**2)).sum()
    assert model.objective_ == pytest.approx(expected, rel=1e-5)
    assert model.kernel_.offset == pytest.approx(
        0.02 * Gaussian("root").resolve(scale(X), 1 / D).sigma
    )


# Input that is not as one would wish.


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.repeat(WINE, 3, axis=0), np.repeat(CULTIVAR, 3)),
        (WINE[::12], CULTIVAR[::12]),
        (WINE, np.repeat(np.arange(20), [9] * 18 + [8] * 2)),
        (WINE, np.arange(178) == 3),
        (WINE, np.repeat(np.arange(3.0), [1, 2, 175]) + 0.5),
        (np.hstack([WINE, np.ones((178, 3)), WINE[:, :2]]), CULTIVAR),
        (np.repeat(WINE[:5], 8, axis=0), np.tile([0, 1], 20)),
    ],
    ids=["repeated", "few", "small classes", "one row", "ties", "columns", "undecided"],
)
def test_awkward_rows_are_fitted(X, y):
    model = _fit(X, y)
    q = len(model.components_)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(q), atol=1e-10)
    assert np.isfinite(model.objective_)
    assert model.transform(X).shape == (len(X), q)


def test_a_row_far_out_is_no_worse_than_with_one_width():
    _, X = _rows(9)
    y = (X[:, 0] > 0).astype(int)
    X[0, 3] = 1e6
    plain = {"kernel": Gaussian("median"), "selection": None}
    default, published = (_fit(X, y, 1, **given) for given in ({}, plain))
    varying = np.arange(D) != 3
    truth = np.eye(D)[varying, :1]
    away = []
    for model in (default, published):
        W = (model.components_ / model.scale_).T[varying]
        away.append(subspace_sine(truth, W / np.linalg.norm(W)))
    assert away[0] <= max(1.5 * away[1], 0.15)


@dataclass(frozen=True)
class _Stored:
    X: np.ndarray
    chunk_rows: int

    @property
    def shape(self):
        return self.X.shape

    @property
    def dtype(self):
        return self.X.dtype

    def read(self, start, stop):
        return self.X[start:stop]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [2400, 5600])
def test_a_selection_sees_the_same_rows_in_memory_and_on_disk_however_they_are_cut(n, weighted):
    rng = np.random.default_rng(n)
    X, y = rng.integers(256, size=(n, 4)).astype(np.uint8), rng.integers(3, size=n)
    weights = rng.integers(1, 3, size=n).astype(float) if weighted else None

    def seen(rows, y, weights, in_order=None):
        prepared = prepare_rows(rows, Gaussian(), standardize=True, weights=weights)
        fit_rows = prepared.fit_rows(Gaussian(), 0, 2, weights, in_order)
        dependence = target_dependence(y, weights=weights)
        problem = fit_rows.selection_problem(dependence, 2, (1.0,))
        return problem.evidence, fit_rows.kernel.sigma

    others = [] if weights is None else [weights]
    order = row_order(X, y, *others)
    evidence, sigma = seen(X[order], y[order], weights if weights is None else weights[order])
    for chunk_rows in (500, 700):
        stored = _Stored(X, chunk_rows)
        other, width = seen(stored, y, weights, sampling_order(stored, y, *others))
        np.testing.assert_allclose(other.X, evidence.X, rtol=0, atol=1e-13)
        np.testing.assert_allclose(other.U, evidence.U, rtol=0, atol=1e-13)
        assert (other.slices == evidence.slices).all()
        assert width == pytest.approx(sigma, rel=1e-13)
