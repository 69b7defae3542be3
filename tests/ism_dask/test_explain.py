"""What each column adds to the new features of a row."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from models import CULTIVAR, WINE, StoredRows, hsic_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from ism_dask import AlternativeIKDR, PredictiveIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.kernels import Gaussian

X, Y = WINE, CULTIVAR
FRAME = pd.DataFrame(X, columns=[f"column {j}" for j in range(13)])


@pytest.fixture(scope="module")
def fitted():
    return PredictiveIKDR(2, kernel=Gaussian(2.0), max_features=None).fit(X, Y)


@pytest.mark.parametrize(
    "model",
    [
        hsic_model(2, rotation="varimax"),
        hsic_model(2, kernel="polynomial", standardize=False),  # no mean is subtracted
        hsic_model(2, kernel="linear", standardize=False),
        PredictiveIKDR(2, max_features=3),
        UnsupervisedIKDR(2),
        AlternativeIKDR(2),
        SemiSupervisedIKDR(3, 2),
    ],
    ids=repr,
)
def test_the_contributions_are_those_of_the_definition(model):
    model.fit(X, Y)
    added, Z = model.explain(X), model.transform(X)
    assert added.shape == (178, 13, len(model.components_))
    for i, j, k in np.ndindex(20, *added.shape[1:]):
        deviation = (X[i, j] - model.mean_[j]) / model.scale_[j]
        assert added[i, j, k] == pytest.approx(deviation * model.components_[k, j], rel=1e-12)
    assert_allclose(added.sum(axis=1), Z, rtol=1e-12, atol=1e-12 * np.abs(added).max())


@pytest.mark.parametrize(
    "container",
    [
        csr_array,
        lambda rows: StoredRows(rows, 50),
        lambda rows: da.from_array(rows, chunks=(50, 5)),
        list,
    ],
    ids=["sparse", "stored", "dask", "list"],
)
def test_the_contributions_are_the_same_from_all_containers(fitted, container):
    added = fitted.explain(container(X))
    assert isinstance(added, da.Array) == isinstance(container(X), da.Array)
    assert_allclose(np.asarray(added), fitted.explain(X), rtol=1e-12)


def test_many_rows_and_single_precision_sum_to_the_new_features(fitted):
    many = np.tile(X, (100, 1)).astype(np.float32)
    added, Z = fitted.explain(many), fitted.transform(many)
    assert added.dtype == Z.dtype == np.float32
    assert_allclose(added.sum(axis=1), Z, atol=1e-5)
    assert_array_equal(added[-178:], added[:178])


def test_a_frame_is_explained_in_the_order_of_its_names():
    fitted = PredictiveIKDR(2, max_features=None).set_output(transform="pandas").fit(FRAME, Y)
    table = pd.DataFrame(
        fitted.explain(FRAME)[17], fitted.feature_names_in_, fitted.get_feature_names_out()
    )
    assert_allclose(table.sum(), fitted.transform(FRAME).loc[17])
    alone = FRAME.loc[[17]].assign(**{"column 4": fitted.mean_[4]})
    assert_allclose(table.drop("column 4").sum(), fitted.transform(alone).loc[17])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (FRAME.iloc[:, :12], "(?s)yet now missing.*column 12"),
        (FRAME.iloc[:, ::-1], "must be in the same order"),
        (FRAME.mask(FRAME > 1500), r"4 of 178 rows have missing numbers, in 1 of 13 columns"),
        (FRAME.assign(**{"column 3": "high"}), "column 3"),
        (FRAME.replace({1680.0: np.inf}), "infinity"),
    ],
)
def test_rows_that_cannot_be_transformed_cannot_be_explained(rows, message):
    fitted = hsic_model(2).fit(FRAME, Y)
    for method in (fitted.transform, fitted.explain):
        with pytest.raises(ValueError, match=message):
            method(rows)


def test_an_estimator_that_is_not_fitted_explains_nothing():
    with pytest.raises(NotFittedError):
        PredictiveIKDR(2).explain(X)
