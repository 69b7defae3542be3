"""A fitted estimator elsewhere: as a model of ONNX, in files of skops, and in MLflow."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import skops.io
from models import CULTIVAR, WINE, hsic_model
from numpy.testing import assert_allclose, assert_array_equal, assert_array_less
from sklearn.pipeline import make_pipeline

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

X, Y = WINE, CULTIVAR
FRAME = pd.DataFrame(X, columns=[f"column {j}" for j in range(13)])


def computed(model, rows):
    """Return what onnxruntime computes of a model for rows."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (Z,) = session.run(None, {"X": rows.astype(np.float32)})
    return Z


RAW = hsic_model(2, kernel="linear", standardize=False)


@pytest.mark.parametrize("model", [PredictiveIKDR(2), RAW, UnsupervisedIKDR(2)], ids=repr)
def test_a_model_of_onnx_computes_the_new_features_in_single_precision(model):
    model.fit(FRAME, Y)
    exported = to_onnx(model)
    onnx.checker.check_model(exported, full_check=True)
    assert [node.op_type for node in exported.graph.node] == ["Sub", "Div", "MatMul"]
    properties = {each.key: json.loads(each.value) for each in exported.metadata_props}
    new = [*model.get_feature_names_out()]
    assert properties == {"columns": list(FRAME), "new_features": new}
    Z, found = model.transform(FRAME), computed(exported, X)
    assert found.dtype == computed(exported, X[:1]).dtype == np.float32
    # Each number is rounded in proportion to its size before the mean is subtracted.
    sizes = np.abs(model.explain(FRAME)).sum(axis=1)
    sizes += np.abs(model.mean_[:, None] * model.weights_).sum(axis=0)
    assert_array_less(np.abs(found - Z), 2 * np.finfo(np.float32).eps * sizes)


def test_a_model_of_onnx_fills_gaps_with_the_means_of_the_fit():
    gappy = np.where(X.max(axis=0) * 0.8 < X, np.nan, X)
    model = hsic_model(2, missing="mean").fit(gappy, Y)
    exported = to_onnx(model)
    onnx.checker.check_model(exported, full_check=True)
    assert_allclose(computed(exported, gappy), model.transform(gappy), atol=1e-4)


def test_what_has_no_model_of_onnx_is_refused(monkeypatch):
    fifth = np.arange(13) == 4
    tiny, far = X * np.where(fifth, 1e-60, 1.0), X + 1e8 * fifth
    for model, error, message in (
        (PredictiveIKDR(2), ValueError, "not fitted"),
        (ColoredMVU().fit(X, Y), TypeError, "weighted sums of columns.*got ColoredMVU"),
        (make_pipeline(hsic_model(2)).fit(X, Y), TypeError, "Of a pipeline, give this step"),
        (hsic_model(2).fit(tiny, Y), ValueError, r"'feature 4' has .*9\.97e-59.*another unit"),
        (hsic_model(2).fit(far, Y), ValueError, r"'feature 4' has the mean 1e\+08 .*or origin"),
    ):
        with pytest.raises(error, match=message):
            to_onnx(model)
    model = hsic_model(2).fit(X, Y)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'ism-dask\[export\]'$"):
        to_onnx(model)


@pytest.mark.parametrize(
    ("model", "rows", "given"),
    [
        (PredictiveIKDR(solver=Ascent(max_iter=500)), FRAME, {"y": Y}),
        (PredictiveIKDR(1, max_features=3), X, {"y": X[:, 0] + X[:, 6] ** 2}),
        (hsic_model(2, solver=ISM(max_iter=500)), X, {"y": Y, "avoid": X[:, 0]}),
        (hsic_model(2, kernel=0.5 * Gaussian() + Polynomial(2), engine="landmarks"), X, {"y": Y}),
        (hsic_model(2, kernel=Laplacian(), engine=EngineOptions("exact")), X, {"y": Y}),
        (UnsupervisedIKDR(3, kernel="multiquadric"), FRAME, {}),
        (UnsupervisedIKDR(3, kernel=Polynomial(2), engine="landmarks"), X, {}),
        (AlternativeIKDR(2), X, {"y": Y}),
        (SemiSupervisedIKDR(3, 2), X, {"y": Y}),
    ],
)
def test_skops_loads_what_it_has_dumped_by_the_types_that_are_listed(model, rows, given, tmp_path):
    model.fit(rows, **given)
    if hasattr(model, "certify"):
        model.certify(rows, **given)
    file = tmp_path / "model.skops"
    skops.io.dump(model, file)
    untrusted = skops.io.get_untrusted_types(file=file)
    assert set(untrusted) <= set(TRUSTED_TYPES)
    with pytest.raises(skops.io.exceptions.UntrustedTypesFoundException):
        skops.io.load(file, trusted=untrusted[1:])
    again = skops.io.load(file, trusted=TRUSTED_TYPES)
    assert_array_equal(again.transform(rows), model.transform(rows))
    assert again.status_ is model.status_
    assert repr(vars(again)) == repr(vars(model))

    # A file can call what is listed: it must be classes of ours, and not what our modules import.
    for module, _, name in (each.rpartition(".") for each in TRUSTED_TYPES):
        assert getattr(sys.modules[module], name).__module__ == module
        assert module.startswith("ism_dask.")


@pytest.mark.long
def test_mlflow_logs_an_estimator_by_skops(tmp_path, monkeypatch):
    for setting in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(setting, "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    model = hsic_model(2).fit(FRAME, Y)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = mlflow.sklearn.log_model(
            model,
            name="wine",
            serialization_format="skops",
            skops_trusted_types=list(TRUSTED_TYPES),
            pip_requirements=["ism-dask"],
        )
    again = mlflow.sklearn.load_model(logged.model_uri)
    assert_array_equal(again.transform(FRAME), model.transform(FRAME))
    assert not list(tmp_path.rglob("*.pkl"))
