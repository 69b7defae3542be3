"""What each column adds to the new features of a row."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from models import CULTIVAR, WINE, StoredRows, hsic_model
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from ism_dask import AlternativeIKDR, PredictiveIKDR, SemiSupervisedIKDR, UnsupervisedIKDR

X, Y = WINE, CULTIVAR
FRAME = pd.DataFrame(X, columns=[f"column {j}" for j in range(13)])
GAPS = np.where(X > 1500, np.nan, X)


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (hsic_model(2, rotation="varimax"), X),
        (hsic_model(2, kernel="polynomial", standardize=False), X),  # no mean is subtracted
        (hsic_model(2, kernel="linear", standardize=False), X),
        (PredictiveIKDR(2, max_features=3), X),
        (hsic_model(2, missing="mean"), GAPS),
        (UnsupervisedIKDR(2), X),
        (AlternativeIKDR(2), X),
        (SemiSupervisedIKDR(3, 2), X),
    ],
    ids=lambda each: repr(each) if hasattr(each, "fit") else "",
)
def test_the_contributions_are_those_of_the_definition(model, rows):
    model.fit(rows, Y)
    added, Z = model.explain(rows), model.transform(rows)
    assert added.shape == (178, 13, len(model.components_))
    whole = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    for i, j, k in np.ndindex(20, *added.shape[1:]):
        deviation = (whole[i, j] - model.mean_[j]) / model.scale_[j]
        expected = deviation * model.components_[k, j]
        assert added[i, j, k] == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert_allclose(added.sum(axis=1), Z, rtol=1e-12, atol=1e-12 * np.abs(added).max())


CONTAINERS = {
    "sparse": csr_array,
    "stored": lambda rows: StoredRows(rows, 50),
    "dask": lambda rows: da.from_array(rows, chunks=(5000, 5)),
    "list": list,
    "single": lambda rows: rows.astype(np.float32),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_the_contributions_are_the_same_from_all_containers(container):
    fitted, many = hsic_model(2).fit(X, Y), np.tile(X, (50, 1))
    rows, tol = CONTAINERS[container](many), 1e-5 if container == "single" else 1e-12
    added, Z = fitted.explain(rows), fitted.transform(rows)
    assert isinstance(added, da.Array) == (container == "dask")
    assert added.dtype == Z.dtype
    assert_allclose(np.asarray(added), np.tile(fitted.explain(X), (50, 1, 1)), atol=tol)
    assert_allclose(np.asarray(added).sum(axis=1), np.asarray(Z), atol=tol)


def test_rows_that_cannot_be_transformed_cannot_be_explained():
    fitted = hsic_model(2).fit(FRAME, Y)
    for model, rows, message in (
        (PredictiveIKDR(2), FRAME, "not fitted"),
        (fitted, FRAME.iloc[:, :12], "(?s)yet now missing.*column 12"),
        (fitted, FRAME.iloc[:, ::-1], "must be in the same order"),
        (fitted, FRAME.mask(FRAME > 1500), "4 of 178 rows have missing numbers, in 1 of 13 col"),
        (fitted, FRAME.replace({1680.0: np.inf}), "infinity"),
    ):
        with pytest.raises(ValueError, match=message):
            model.explain(rows)
