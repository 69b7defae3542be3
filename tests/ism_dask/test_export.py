"""A fitted estimator elsewhere: as a model of ONNX, in files of skops, and in MLflow."""

import json
import pickle
import sys
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import skops.io
from models import CULTIVAR, WINE, hsic_model
from numpy.testing import assert_allclose, assert_array_equal, assert_array_less
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ism_dask import (
    AlternativeIKDR,
    ColoredMVU,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    UnsupervisedIKDR,
    to_onnx,
)
from ism_dask.engines import EngineOptions
from ism_dask.export import TRUSTED_TYPES
from ism_dask.kernels import Gaussian, Laplacian, Polynomial
from ism_dask.solvers import ISM, Ascent
from ism_dask.status import Status

X, Y = WINE, CULTIVAR
FRAME = pd.DataFrame(X, columns=[f"column {j}" for j in range(13)])


@cache
def fitted(kind=PredictiveIKDR):
    return kind(2).fit(FRAME, Y)


def computed(model, rows):
    """Return what onnxruntime computes of a model for rows."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (Z,) = session.run(None, {"X": rows.astype(np.float32)})
    return Z


@pytest.mark.parametrize(
    "model",
    [
        PredictiveIKDR(2),
        hsic_model(2, rotation="varimax"),
        hsic_model(2, kernel="linear", standardize=False),
        UnsupervisedIKDR(2),
    ],
    ids=repr,
)
def test_a_model_of_onnx_computes_the_new_features_in_single_precision(model):
    model.fit(X, Y)
    exported = to_onnx(model)
    onnx.checker.check_model(exported, full_check=True)
    assert [node.op_type for node in exported.graph.node] == ["Sub", "Div", "MatMul"]
    # Each number is rounded in proportion to its size before the mean is subtracted.
    offsets = np.abs(model.mean_[:, None] * model.weights_).sum(axis=0)
    for rows in (X, X[:1]):
        Z, found = model.transform(rows), computed(exported, rows)
        assert found.dtype == np.float32
        sizes = np.abs(model.explain(rows)).sum(axis=1) + offsets
        assert_array_less(np.abs(found - Z), 2 * np.finfo(np.float32).eps * sizes)


def test_a_model_of_onnx_fills_gaps_with_the_means_of_the_fit():
    gappy = np.where(X.max(axis=0) * 0.8 < X, np.nan, X)
    model = hsic_model(2, missing="mean").fit(gappy, Y)
    exported = to_onnx(model)
    onnx.checker.check_model(exported, full_check=True)
    assert_allclose(computed(exported, gappy), model.transform(gappy), atol=1e-4)


def test_a_model_of_onnx_knows_the_names_of_its_columns():
    properties = {each.key: each.value for each in to_onnx(fitted()).metadata_props}
    assert json.loads(properties["columns"]) == list(FRAME)
    assert json.loads(properties["new_features"]) == ["predictiveikdr0", "predictiveikdr1"]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PredictiveIKDR(2), NotFittedError, "not fitted"),
        (lambda: ColoredMVU().fit(X, Y), TypeError, "weighted sums of columns.*got ColoredMVU"),
        (
            lambda: make_pipeline(StandardScaler(), hsic_model(2)).fit(X, Y),
            TypeError,
            "got Pipeline. Of a pipeline, give this step",
        ),
        (
            lambda: hsic_model(2).fit(X * np.where(np.arange(13) == 4, 1e-60, 1.0), Y),
            ValueError,
            r"'feature 4' has the mean 9\.97e-59.*Take another unit",
        ),
    ],
)
def test_what_has_no_model_of_onnx_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        to_onnx(make())


def test_without_onnx_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'ism-dask\[export\]'$"):
        to_onnx(fitted())


def certified(model, *rows, **sides):
    model.fit(*rows, **sides).certify(*rows, **sides)
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: certified(PredictiveIKDR(solver=Ascent(max_iter=500)), FRAME, Y),
        lambda: PredictiveIKDR(1, max_features=3).fit(X, X[:, 0] + X[:, 6] ** 2),
        lambda: certified(hsic_model(2, solver=ISM(max_iter=500)), X, Y, avoid=X[:, 0]),
        lambda: hsic_model(2, kernel=0.5 * Gaussian() + Polynomial(2), engine="landmarks").fit(
            X, Y
        ),
        lambda: hsic_model(2, kernel=Laplacian(), engine=EngineOptions("exact")).fit(X, Y),
        lambda: UnsupervisedIKDR(3, kernel="relative_gaussian").fit(FRAME),
        lambda: UnsupervisedIKDR(3, kernel="multiquadric").fit(X),
        lambda: AlternativeIKDR(2).fit(X, Y),
        lambda: SemiSupervisedIKDR(3, 2).fit(X, Y),
    ],
)
def test_skops_loads_what_it_has_dumped_by_the_types_that_are_listed(make, tmp_path):
    model, file = make(), tmp_path / "model.skops"
    skops.io.dump(model, file)
    untrusted = skops.io.get_untrusted_types(file=file)
    assert set(untrusted) <= set(TRUSTED_TYPES)
    with pytest.raises(skops.io.exceptions.UntrustedTypesFoundException):
        skops.io.load(file, trusted=untrusted[1:])
    again = skops.io.load(file, trusted=TRUSTED_TYPES)
    rows = FRAME if hasattr(model, "feature_names_in_") else X
    assert_array_equal(again.transform(rows), model.transform(rows))
    if hasattr(model, "predict"):
        assert_array_equal(again.predict(rows), model.predict(rows))
    assert again.status_ is model.status_
    assert repr(vars(again)) == repr(vars(model))


def test_a_file_of_skops_may_call_no_function_that_our_modules_import():
    assert not [each for each in TRUSTED_TYPES if not each.startswith("ism_dask.")]
    for name in TRUSTED_TYPES:
        module, _, kind = name.rpartition(".")
        assert isinstance(getattr(sys.modules[module], kind), type)


def test_an_ending_is_the_same_after_pickle():
    assert all(pickle.loads(pickle.dumps(each)) is each for each in Status)


@pytest.mark.long
def test_mlflow_logs_an_estimator_by_skops(tmp_path, monkeypatch):
    for setting in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(setting, "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = mlflow.sklearn.log_model(
            fitted(),
            name="wine",
            serialization_format="skops",
            skops_trusted_types=list(TRUSTED_TYPES),
            pip_requirements=["ism-dask"],
        )
    again = mlflow.sklearn.load_model(logged.model_uri)
    assert_allclose(again.transform(FRAME), fitted().transform(FRAME))
    assert list(tmp_path.rglob("*.skops"))
    assert not list(tmp_path.rglob("*.pkl"))
