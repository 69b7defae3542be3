"""Kernels by their definition: values, slopes, widths, sums."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist

from ism_dask import SupervisedIKDR, kernels
from ism_dask.kernels import Gaussian, Laplacian, Linear, Multiquadric, Polynomial, RelativeGaussian
from ism_dask.kernels.base import PointwiseKernel
from ism_dask.kernels.pairing import INNER

ROWS = np.random.default_rng(0).normal(size=(40, 3))
# Every kernel, as it is by default and with the parameters that are easiest to get wrong: even
# degrees, offset 0, narrow and wide.
WALKED = [
    *(kind() for kind in kernels.KERNELS.values()),
    Laplacian(),
    *(Polynomial(degree, offset) for degree in (1, 2, 3, 4) for offset in (0.0, 0.5)),
    *(Gaussian(width) for width in (0.3, 20.0, "median")),
    *(Laplacian(width, offset) for width in (0.5, 20.0) for offset in (0.3, 5.0)),
    *(Multiquadric(offset) for offset in (0.3, 20.0)),
    *(kernels.DistanceKernel(offset) for offset in (0.3, 20.0)),
    *(RelativeGaussian(neighbor) for neighbor in (1, 35)),
]
walked = pytest.mark.parametrize("kernel", WALKED, ids=repr)


def test_every_exported_kernel_is_walked():
    exported = [getattr(kernels, name) for name in kernels.__all__]
    kinds = {each for each in exported if isinstance(each, type)}
    kinds = {each for each in kinds if issubclass(each, PointwiseKernel)}
    kinds -= {PointwiseKernel, kernels.ValueAsSlope}  # one to derive from, one of another
    assert kinds <= {type(kernel) for kernel in WALKED}


def _points(kernel):
    return np.linspace(-2.0 if kernel.pairing is INNER else 0.05, 6.0, 97).reshape(1, -1)


@walked
def test_slope_is_the_derivative_of_value(kernel):
    kernel = kernel.resolve(ROWS)
    beta, h = _points(kernel), 1e-6
    central = (kernel.value(beta + h) - kernel.value(beta - h)) / (2 * h)
    assert_allclose(kernel.slope(beta), central, rtol=1e-6, atol=1e-8)


@walked
def test_flat_kernel_has_the_slope_at_zero(kernel):
    kernel = kernel.resolve(ROWS)
    zero, flat = np.zeros((1, 1)), kernel.linearised()
    expected = kernel.slope(zero)
    if not expected.any():  # a polynomial without offset: the sign of f' beside 0 takes its place
        expected = np.sign(kernel.slope(zero + 1e-3))
    assert_allclose(flat.slope(zero), expected)
    assert_allclose(np.ptp(flat.slope(_points(kernel))), 0.0, atol=1e-15)
    assert flat.constant_slope
    assert flat.pairing is kernel.pairing
    assert flat.title == kernel.title  # which errors name


def test_median_width_is_the_median_distance_past_copies_and_their_rounding():
    for m in (2, 3, 20, 41):
        rows = np.random.default_rng(m).normal(size=(m, 4))
        assert_allclose(Gaussian().resolve(rows).sigma, np.median(pdist(rows)), rtol=1e-12)
    rows = np.zeros((10, 2))
    rows[0] = 3.0, 4.0
    assert Gaussian().resolve(rows).sigma == pytest.approx(5.0)
    sparse = (np.random.default_rng(0).random((400, 100)) < 0.002) * 1.0
    assert Gaussian().resolve(sparse).sigma >= 1.0
    far = 1e-3 * np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    far[0] = 1e5
    model = SupervisedIKDR(1, kernel=Gaussian("median"), standardize=False).fit(far, far[:, 1] > 0)
    assert model.kernel_.sigma == pytest.approx(np.median(pdist(far)), rel=1e-6)
    with pytest.raises(ValueError, match="all rows that count are equal"):
        Gaussian().resolve(np.ones((5, 2)))


def test_sums_scale_and_add():
    total = 0.5 * Gaussian(2.0) + Polynomial() * 2 + (Linear() + kernels.Squared())
    assert isinstance(total, kernels.ConicSum)
    assert [weight for weight, _ in total.terms] == [0.5, 2.0, 1.0, 1.0]
    assert (3 * total).terms[1][0] == 6.0
    assert 1.0 * Gaussian(2.0) == Gaussian(2.0)


SIZES = [1e-160, 1e160]
LOCAL = Gaussian() + 0.5 * RelativeGaussian()
PER_ROW = r"RelativeGaussian has a width for each row.*expected.*Compute `s = kernel.widths"
NO_SIZE = r"must be from 1e-150 to 1e\+150, .* got 1e.160"


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Gaussian, [0.0, -1.0, "mean", 1e-200, 1e200, np.nan, np.array([1.0, 2.0])], "must be"),
        (Polynomial, [0, 2.5, None, np.nan], "must be"),
        (lambda offset: Polynomial(offset=offset), ["a", np.inf, -1.0], "must be"),
        (Multiquadric, [0.0], "must be"),
        (RelativeGaussian, [0, None], "must be"),
        (lambda weight: weight * Linear(), [0, np.nan], "must be"),
        # Their squares are no numbers.
        (Gaussian, SIZES, NO_SIZE),
        (Multiquadric, SIZES, NO_SIZE),
        (lambda size: Polynomial(2, size), SIZES, NO_SIZE),
        (lambda size: size * Linear(), SIZES, NO_SIZE),
        # These have not met rows, or have no widths of rows.
        (Gaussian().value, [np.ones(1)], "resolve"),
        (RelativeGaussian().widths, [ROWS], "resolve"),
        (Linear().widths, [ROWS], "one width"),
        # Projected rows do not tell their widths.
        (lambda rows: LOCAL.resolve(rows).matrix(rows, rows), [ROWS], PER_ROW),
    ],
)
def test_what_no_kernel_can_have_is_refused(kind, values, message):
    error = ValueError if "must be" in message else TypeError
    for value in values:
        with pytest.raises(error, match=message):
            kind(value)
