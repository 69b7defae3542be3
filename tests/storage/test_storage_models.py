"""Models and strict JSON: what is saved is what is loaded."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from stock import store_small

from ism_dask import (
    AlternativeIKDR,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
)
from ism_dask.rows.raw import ColumnMoments
from storage import Model, RunNotFound, Sample, StorageError, UnfitRows, load_model, save_model
from storage.records import dumps, loads
from storage.runs import model_hash
from storage.store import arrays_digest


def model(**changes):
    rng = np.random.default_rng(0)
    fields = {
        "components": rng.normal(size=(2, 4)),
        "mean": rng.normal(size=4),
        "scale": np.ones(4),
        "eigenvalues": np.array([3.0, 1.0]),
        "feature_names": ("a", "b", "c", "ü"),
        "class_names": ("x", "y"),
        "config": {"kernel": {"name": "gaussian", "sigma": 1.5}, "seed": None, "entropy": 2**127},
        "metrics": {"nmi": math.nan, "gap": math.inf, "low": -math.inf, "folds": [0.5, 1]},
        "versions": {"numpy": "2"},
    }
    return Model(**{**fields, **changes})


@pytest.mark.parametrize(
    ("dtype", "labels"), [(np.float32, np.int32), (np.float64, np.int64), (np.float64, np.uint8)]
)
def test_a_model_comes_back_as_it_was(dtype, labels):
    sample = Sample(np.ones((3, 2), np.float32), np.arange(3))
    changes = {"labels": np.array([0, 2, 1, 1], labels), "sample": sample}
    saved = model(components=model().components.astype(dtype), **changes)
    path = save_model("run-1", saved)
    names = sorted(each.name for each in path.iterdir())
    assert names == ["arrays.bin", "manifest.json", "record.json"]
    for loaded in (load_model("run-1"), load_model(path)):
        assert_array_equal(loaded.sample.points, sample.points)
        for name in ("components", "mean", "scale", "eigenvalues", "labels"):
            assert_array_equal(getattr(loaded, name), getattr(saved, name))
            assert getattr(loaded, name).dtype == getattr(saved, name).dtype
        for name in ("feature_names", "class_names", "config", "versions"):
            assert getattr(loaded, name) == getattr(saved, name)
        assert math.isnan(loaded.metrics["nmi"])
        assert (loaded.metrics["gap"], loaded.metrics["low"]) == (math.inf, -math.inf)
        assert loaded.metrics["folds"] == [0.5, 1]


def test_saving_again_replaces_unless_it_fails():
    save_model("run", model(labels=np.arange(4)))
    path = save_model("run", model(class_names=None, feature_names=None))
    assert load_model("run").class_names is load_model("run").labels is None
    arrays = {name: getattr(model(), name) for name in ("components", "mean", "scale")}
    assert model_hash("run") == arrays_digest({**arrays, "eigenvalues": model().eigenvalues})
    assert sorted(p.name for p in path.parent.iterdir()) == [".lock", "result"]
    with pytest.raises(StorageError, match=r"value\.record\.config\.engine"):
        save_model("run", model(config={"engine": object()}))
    assert load_model("run").versions == {"numpy": "2"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({"components": np.ones(shape)}, "`components`") for shape in (4, (0, 4))),
        ({"components": np.ones((2, 4), int)}, "`components`"),
        ({"components": np.full((2, 4), np.nan)}, "NaN"),
        ({"mean": np.ones(3)}, "`mean`"),
        ({"scale": np.ones((4, 1))}, "`scale`"),
        ({"eigenvalues": np.ones(3)}, "`eigenvalues`"),
        ({"feature_names": ("a",)}, "`feature_names`"),
        *(({"image_shape": shape}, "`image_shape`") for shape in ((3, 2), (4,))),
        *(({"labels": y}, "`labels`") for y in (np.zeros(3), np.zeros((3, 1), int))),
        ({"sample": Sample(np.zeros((3, 1)), np.zeros(3))}, "`sample.points`"),
        ({"sample": Sample(np.zeros((3, 2)), np.zeros((3, 1, 1)))}, "`sample.values`"),
        ({"statistics": ColumnMoments.from_rows(np.ones((5, 3)))}, "`statistics.mean`"),
    ],
)
def test_a_model_that_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(StorageError, match=message):
        model(**changes)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, bool])
def test_transform_is_the_projection(dtype):
    saved = model()
    X = np.random.default_rng(1).integers(0, 2, size=(5, 4)).astype(dtype)
    found = saved.transform(X)
    expected = ((X.astype(float) - saved.mean) / saved.scale) @ saved.components.T
    assert found.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert_allclose(found, expected, rtol=1e-5 if dtype is np.float32 else 1e-12)
    assert saved.transform(X[:0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((2, 3)), r"`X` has shape \(2, 3\) of float64; expected \(n, 4\)"),
        (np.ones(4), r"`X` has shape \(4,\)"),
        ([["a", "b", "c", "d"]], "of <U1; expected"),
        (pd.DataFrame(np.ones((2, 2)), columns=["a", "c"]), "lacks the columns b, ü; .* 4 in all"),
        ([[1, 2, 3, 4], [1, np.nan, 3, 4], [1, 2, np.inf, 4]], "in 2 rows, the first number 1;"),
    ],
)
def test_rows_that_do_not_fit_are_refused(X, message):
    with pytest.raises(UnfitRows, match=message):
        model().transform(X)
    assert issubclass(UnfitRows, ValueError)


def test_no_model_says_so():
    with pytest.raises(RunNotFound, match="no run 'run' is saved"):
        load_model("run")
    with pytest.raises(StorageError):
        load_model(store_small())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=30)
@given(PLAIN)
def test_json_round_trip(value):
    text = dumps(value)
    json.loads(text, parse_constant=pytest.fail)
    assert loads(text) == value


def test_json_takes_numpy_and_refuses_the_rest():
    known = {"a": np.float32(0.5), "b": np.arange(2), "c": (1,)}
    assert loads(dumps(known)) == {"a": 0.5, "b": [0, 1], "c": [1]}
    assert loads(r'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}
    for text in (r'{"a": "\uD83D"}', rb'["\ud83d"]'):  # half a character
        with pytest.raises(ValueError, match="surrogates"):
            loads(text)
    for bad in ({1: 2}, {"__float__": "nan"}, {"a": [{2}]}, 1j, b"", {"a": "\ud800"}):
        with pytest.raises(StorageError, match="`value"):
            dumps(bad)


@pytest.mark.parametrize(
    "estimator",
    [PredictiveIKDR, SupervisedIKDR, UnsupervisedIKDR, SemiSupervisedIKDR, AlternativeIKDR],
)
def test_new_features_are_called_as_by_the_estimator(estimator):
    fitted = estimator(2)
    fitted.components_ = model().components
    paradigm = estimator.__name__.removesuffix("IKDR").lower()
    named = model(metrics={} if paradigm == "supervised" else {"paradigm": paradigm})
    assert named.get_feature_names_out() == tuple(fitted.get_feature_names_out())
