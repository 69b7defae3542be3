"""Solvers and engines given as objects, for all in the registries."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields

import pytest
from models import HSIC_SOLVERS, hsic_model
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from ism_dask import UnsupervisedIKDR, hsic
from ism_dask.engines import ENGINES, Auto, Blocks, Exact, Landmarks
from ism_dask.kernels import Gaussian, Polynomial, Squared
from ism_dask.solvers import ISM, Stiefel
from ism_dask.status import Status

# Some tests compare fits that end before they converge.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, y = load_wine(return_X_y=True)
# A kernel that the engine serves; all others serve a gaussian.
SERVED = {"closed": Squared(), "monomials": Polynomial(2)}
CHOICES = {"auto": Auto, **ENGINES}
OBJECTS = [kind() for kind in (*HSIC_SOLVERS.values(), *CHOICES.values())]


def _fitted(**parameters):
    return hsic_model(2, random_state=3, **parameters).fit(X, y)


def _assert_same_bits(one, other):
    assert_array_equal(one.components_, other.components_)
    assert one.objective_ == other.objective_
    assert (one.n_iter_, one.status_, one.engine_) == (other.n_iter_, other.status_, other.engine_)
    assert one.tolerance_ == other.tolerance_
    assert one.engine_error_ == other.engine_error_


@pytest.mark.parametrize("name", HSIC_SOLVERS)
def test_a_solver_by_name_and_by_object_gives_the_same_bits(name):
    limits, kernel = {"max_iter": 5, "max_seconds": 600.0}, Gaussian("median")
    by_name = _fitted(kernel=kernel, solver=name)
    _assert_same_bits(by_name, _fitted(kernel=kernel, solver=HSIC_SOLVERS[name]()))
    assert _fitted(kernel=kernel, solver=HSIC_SOLVERS[name](**limits)).n_iter_ <= 10


@pytest.mark.parametrize("name", CHOICES)
def test_an_engine_by_name_and_by_object_gives_the_same_bits(name):
    kernel = SERVED.get(name, Gaussian(3.0))
    by_name = _fitted(kernel=kernel, engine=name)
    _assert_same_bits(by_name, _fitted(kernel=kernel, engine=CHOICES[name]()))


@pytest.mark.parametrize("name", CHOICES)
def test_clusterers_and_hsic_take_engines_as_objects(name):
    kernel = SERVED.get(name, Gaussian(10.0))
    rows = scale(X)
    assert hsic(rows, y, kernel=kernel, engine=name) == hsic(
        rows, y, kernel=kernel, engine=CHOICES[name]()
    )
    by_name, by_object = (
        UnsupervisedIKDR(3, 2, kernel=kernel, engine=each).fit(X)
        for each in (name, CHOICES[name]())
    )
    _assert_same_bits(by_name, by_object)
    assert_array_equal(by_name.embedding_, by_object.embedding_)


def test_clusterers_take_the_published_rule_from_the_object():
    fitted = UnsupervisedIKDR(3, 2, solver=ISM(tol=0.05, max_iter=40)).fit(X)
    assert fitted.tolerance_ == 0.05
    assert fitted.status_ is Status.TOLERANCE


@pytest.mark.parametrize("each", OBJECTS, ids=repr)
def test_options_are_values(each):
    assert each == type(each)()
    assert hash(each) == hash(type(each)())
    assert pickle.loads(pickle.dumps(each)) == each
    assert eval(repr(each), {type(each).__name__: type(each)}) == each
    assert all(each != other for other in OBJECTS if other is not each)
    for field in fields(each):
        with pytest.raises(FrozenInstanceError):
            setattr(each, field.name, 1)


def test_estimators_with_objects_follow_scikit_learn():
    model = hsic_model(2, solver=ISM(tol=1e-6, max_iter=500), engine=Landmarks(tol=1e-3))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.solver == ISM(tol=1e-6, max_iter=500)
    assert "engine=Landmarks(tol=0.001)" in repr(model)
    copy.set_params(engine=Exact(), solver="ism")
    assert copy.engine == Exact()
    assert model.engine == Landmarks(tol=1e-3)
    fitted = clone(model).set_params(engine=Exact()).fit(X, y)
    assert pickle.loads(pickle.dumps(fitted)).engine == Exact()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (ISM, {"tol": 0.0}, r"`tol` must be a number in \(0, inf\)"),
        (ISM, {"tol": "small"}, r"`tol` must be a number in \(0, inf\); got 'small'"),
        (ISM, {"angle_tol": -1.0}, r"`angle_tol` must be a number in \(0, inf\)"),
        (ISM, {"angle_tol": 0.1}, "`angle_tol` goes with `tol`, which is None"),
        (ISM, {"restarts": -1}, "`restarts` must be a whole number from 0 up; got -1"),
        (ISM, {"refine": "yes"}, "`refine` must be True or False; got 'yes'"),
        (ISM, {"continuation": 3}, "`continuation` must be True or False; got 3"),
        (Stiefel, {"max_iter": 0}, "`max_iter` must be a whole number from 1 up"),
        (ISM, {"max_seconds": 0.0}, "`max_seconds` must be a positive finite number or None"),
        (Landmarks, {"tol": 1.0}, r"`tol` of an engine must be a number in \(0, 1\)"),
        (Blocks, {"rows": 5}, "`rows` of an engine must be a whole number from 10 up"),
        (Blocks, {"device": 0}, 'must be "auto", "cpu" or a name such as "cuda:0"; got 0'),
        (Auto, {"blocks": 2}, "`blocks` of an engine must be True or False; got 2"),
    ],
)
def test_options_out_of_range_are_refused_at_once(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)
