"""Arrays of other libraries than NumPy: a fit takes them, and gives its arrays back in kind."""

import array_api_strict as strict
import numpy as np
import pytest
from models import CULTIVAR, WINE
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from ism_dask import ColoredMVU, PredictiveIKDR, SupervisedIKDR, dependence_test, hsic, intervals
from ism_dask.gamma.row_values import Device, on_host

ROWS, LABELS = WINE[1::3], CULTIVAR[1::3]
PLACE = strict.Device("device1")
DEVICE = Device(strict, PLACE)


@pytest.fixture(autouse=True)
def _dispatching(monkeypatch):
    """Let scikit-learn dispatch on arrays."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with config_context(array_api_dispatch=True):
        yield


@pytest.mark.parametrize("kind", [PredictiveIKDR, SupervisedIKDR])
def test_a_fit_to_arrays_of_another_library_is_that_of_numpy(kind):
    fitted = kind(2).fit(ROWS, LABELS)
    X, y = DEVICE.put(ROWS), DEVICE.put(LABELS)
    other = kind(2).fit(X, y)
    for name in ("components_", "mean_", "scale_", "eigenvalues_"):
        assert getattr(other, name).device == PLACE
        here = getattr(other.on_host(), name)
        assert_allclose(here, getattr(fitted, name), rtol=1e-6, atol=1e-8)
    Z = other.transform(X)
    assert Z.device == other.inverse_transform(Z).device == PLACE
    assert_allclose(on_host(Z), fitted.transform(ROWS), atol=1e-6)
    assert other.explain(X).device == PLACE
    assert_allclose(on_host(other.explain(X)), fitted.explain(ROWS), atol=1e-6)
    assert other.score(X, y) == pytest.approx(fitted.score(ROWS, LABELS), abs=1e-6)
    assert_allclose(other.feature_importances_, fitted.feature_importances_, atol=1e-6)
    assert_allclose(other.weights_, fitted.weights_, atol=1e-6)
    assert other.objective_ == pytest.approx(fitted.objective_)
    assert other.certify(X, y).is_certified
    if kind is PredictiveIKDR:
        there, here = intervals(other, X, y), intervals(fitted, ROWS, LABELS)
        assert_allclose(there.standard_errors, here.standard_errors, rtol=1e-3, atol=1e-6)
        again = other.set_params(warm_start=True).fit(X, y)
        assert again.n_iter_ == 1
    with pytest.raises(ValueError, match="they are of NumPy, the fit is of array_api_strict"):
        other.transform(ROWS)
    gap = DEVICE.put(np.where(ROWS > 1500, np.nan, ROWS))
    with pytest.raises(ValueError, match=r"\d of 59 rows have missing numbers, in \d of 13 col"):
        other.transform(gap)


def test_a_device_without_double_precision_is_refused():
    place = strict.Device("no_float64")
    X, y = (strict.asarray(each.astype("f4"), device=place) for each in (WINE, CULTIVAR))
    with pytest.raises(ValueError, match=r"array_api_strict on .* has no float64"):
        PredictiveIKDR(2).fit(X, y)


def test_what_computes_here_takes_arrays_of_another_library():
    X, y = DEVICE.put(WINE), DEVICE.put(CULTIVAR)
    assert hsic(X, y) == hsic(WINE, CULTIVAR)
    there = dependence_test(X, y, given=X[:, 0], random_state=0)
    assert there.pvalue == dependence_test(WINE, CULTIVAR, given=WINE[:, 0], random_state=0).pvalue
    Z = ColoredMVU(1).fit_transform(X[50:80, :], y[50:80])
    assert_array_equal(Z, ColoredMVU(1).fit_transform(WINE[50:80], CULTIVAR[50:80]))
