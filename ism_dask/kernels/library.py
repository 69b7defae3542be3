"""The kernels of the ISM family, and the registry of their names, which the tests walk.

A new kernel is one class here and one line in `KERNELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp, sqrt
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import check_positive_int, squarable_float
from ism_dask.kernels.base import Kernel, PointwiseKernel, full_like
from ism_dask.kernels.monomials import Monomials
from ism_dask.kernels.pairing import DISTANCE, INNER
from ism_dask.kernels.widths import median_distance, neighbor_distances

# An offset too small to round off the tip of the kernel at beta = 0.
_NEGLIGIBLE_OFFSET = 1e-6
# The default offset of the distance kernel, as a share of the distance between rows.
_DISTANCE_OFFSET = 0.02


def scaled_median_distance(sample: Array, share: float) -> float:
    """Return the median distance of rows (m, d) times the root of the share of columns in use.

    Standardised columns contribute alike to squared distances, so this is the typical distance
    between rows of q columns.
    """
    return sqrt(share) * median_distance(sample, 'sigma="root"')


def _unscaled_distance(sample: Array, share: float) -> float:  # noqa: ARG001  all columns count
    return median_distance(sample)


# Multiples of the width "root" that model selection tries.
_MULTIPLES = (2.0, 1.0, 0.5, 0.25)

# Rules that compute a width from the data, by name.
WIDTHS: dict[str, Callable[[Array, float], float]] = {
    "root": scaled_median_distance,
    "median": _unscaled_distance,
}


@dataclass(frozen=True)
class Linear(PointwiseKernel):
    """`f(beta) = beta` of inner products: supervised PCA."""

    pairing = INNER
    constant_slope = True
    slope_is_psd = True
    value_by_slope = (0.0, 1.0)
    amplitude = 1.0
    slope_at_zero = 1.0

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return beta."""
        return np.positive(beta, out=out)

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return ones."""
        return full_like(beta, 1.0, out)


@dataclass(frozen=True)
class Squared(PointwiseKernel):
    """`f(beta) = -beta` of squared distances.

    The paper prints this kernel without the minus. Without it the kernel is not positive
    semi-definite, and its maximum is the null space of X. With it the kernel is conditionally
    positive definite, and since Gamma is centred the objective is a true HSIC.
    """

    pairing = DISTANCE
    constant_slope = True
    slope_is_psd = True
    value_by_slope = (0.0, 1.0)
    amplitude = -1.0
    slope_at_zero = -1.0

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return -beta."""
        return np.negative(beta, out=out)

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return ones."""
        return full_like(beta, 1.0, out)


@dataclass(frozen=True)
class Polynomial(PointwiseKernel):
    """`f(beta) = (beta + offset)^degree` of inner products."""

    degree: int = 3
    offset: float = 1.0

    pairing = INNER
    slope_is_psd = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_positive_int("`degree`", self.degree)
        if self.offset != 0:
            squarable_float("`offset`", self.offset, "or 0")

    @property
    def amplitude(self) -> float:
        """`p`."""
        return float(self.degree)

    @property
    def slope_at_zero(self) -> float:
        """`p c^(p-1)`, or 1 if that is 0: for even p - 1, f' is positive near 0."""
        return float(self.degree * self.offset ** (self.degree - 1)) or 1.0

    @property
    def roundings(self) -> int:  # type: ignore[override]
        """Four for each factor of the power, and those of the base class."""
        return 4 * self.degree + 64

    @property
    def value_by_slope(self) -> tuple[float, float]:
        """`(c / p, 1 / p)`."""
        return self.offset / self.degree, 1.0 / self.degree

    def features(self, q: int) -> Monomials:
        """Return the monomials up to degree p - 1."""
        return Monomials(q, self.degree - 1, self.offset)

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `(beta + c)^p`."""
        return _power(np.add(beta, self.offset, out=out), self.degree)

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return `(beta + c)^(p-1)`."""
        return _power(np.add(beta, self.offset, out=out), self.degree - 1)

    def second_derivative(self, beta: Array, scale: Array | None = None) -> Array:
        """Return `p (p - 1) (beta + c)^(p-2)`."""
        power = _power(np.add(beta, self.offset), max(self.degree - 2, 0))
        return np.multiply(power, self.degree * (self.degree - 1), out=power)


@dataclass(frozen=True)
class _SharedWidth(PointwiseKernel):
    """A kernel of squared distances with one width for all rows."""

    sigma: float | str = "root"

    pairing = DISTANCE
    slope_is_psd = True

    def __post_init__(self) -> None:
        """Check the width."""
        if not (isinstance(self.sigma, str) and self.sigma in WIDTHS):
            squarable_float("`sigma`", self.sigma, 'or "root" or "median"')

    def resolve(self, sample: Array, share: float = 1.0) -> Self:
        """Return the kernel with a number for sigma."""
        if not isinstance(self.sigma, str):
            return self
        return replace(self, sigma=WIDTHS[self.sigma](sample, share))

    @property
    def multiples(self) -> tuple[float, ...]:
        """Several multiples, from wide to narrow, if sigma is the rule of thumb "root"."""
        return _MULTIPLES if self.sigma == "root" else ()

    def widened(self, factor: float) -> Self:
        """Return the kernel with its width multiplied by `factor`."""
        return replace(self, sigma=factor * self._width)

    @property
    def _width(self) -> float:
        if isinstance(self.sigma, str):
            name = type(self).__name__
            raise TypeError(f"{name}(sigma={self.sigma!r}) has no width yet: call resolve(rows)")
        return self.sigma

    @property
    def similarity(self) -> Self:
        """The kernel itself: it is never negative, and its matrix is positive definite."""
        return self


@dataclass(frozen=True)
class Gaussian(_SharedWidth):
    """`f(beta) = exp(-beta / 2 sigma^2)` of squared distances.

    Parameters
    ----------
    sigma : float, "root" or "median", default "root"
        The width. "median" is the median distance between the standardised rows, as in the paper.
        "root" is that times sqrt(q / d): about the distance between rows in q columns.
        Clusterers and `hsic` use all columns, so that both widths are the same there.
    """

    @property
    def _rate(self) -> float:
        return 0.5 / self._width**2

    @property
    def value_by_slope(self) -> tuple[float, float]:
        """`(-2 sigma^2, 0)`."""
        return -1.0 / self._rate, 0.0

    @property
    def amplitude(self) -> float:
        """`-1 / 2 sigma^2`."""
        return -self._rate

    @property
    def slope_at_zero(self) -> float:
        """`-1 / 2 sigma^2`."""
        return -self._rate

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `exp(-beta / 2 sigma^2)`."""
        return _exponential(np.multiply(beta, -self._rate, out=out))

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return f itself."""
        return self.value(beta, scale, out)

    def second_derivative(self, beta: Array, scale: Array | None = None) -> Array:
        """Return `f / 4 sigma^4`."""
        value = self.value(beta)
        return np.multiply(value, self._rate**2, out=value)


@dataclass(frozen=True)
class Laplacian(_SharedWidth):
    """`f(beta) = exp(-sqrt(2 (beta + c^2)) / sigma)` of squared distances.

    This is the exponential of a multiquadric. As a density of distances its standard deviation
    is sigma, like that of a gaussian with this sigma.
    """

    offset: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters: at offset 0 the slope at beta = 0 is infinite."""
        super().__post_init__()
        squarable_float("`offset`", self.offset)

    @property
    def amplitude(self) -> float:
        """`-1 / (sqrt(2) sigma)`."""
        return -sqrt(0.5) / self._width

    @property
    def slope_at_zero(self) -> float:
        """The slope at beta = 0."""
        return self.amplitude * exp(-sqrt(2.0) * self.offset / self._width) / self.offset

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `exp(-sqrt(2 (beta + c^2)) / sigma)`."""
        root = _root(beta, self.offset, out)
        return _exponential(np.multiply(root, -sqrt(2.0) / self._width, out=root))

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return `f / sqrt(beta + c^2)`."""
        root = _root(beta, self.offset, None)
        value = np.exp(np.multiply(root, -sqrt(2.0) / self._width, out=out), out=out)
        return np.divide(value, root, out=value)

    def second_derivative(self, beta: Array, scale: Array | None = None) -> Array:
        """Return `f (1 / 2 sigma^2 r^2 + 1 / 2 sqrt(2) sigma r^3)` for `r = sqrt(beta + c^2)`."""
        root, amplitude = _root(beta, self.offset, None), self.amplitude
        return self.value(beta) * (amplitude**2 - 0.5 * amplitude / root) / root**2


@dataclass(frozen=True)
class Multiquadric(PointwiseKernel):
    """`f(beta) = -sqrt(beta + offset^2)` of squared distances.

    The minus is there for the reason given at `Squared`.
    """

    offset: float = 1.0

    pairing = DISTANCE
    slope_is_psd = True
    amplitude = -0.5

    def __post_init__(self) -> None:
        """Check the offset: at 0 the slope at beta = 0 is infinite."""
        squarable_float("`offset`", self.offset)

    @property
    def value_by_slope(self) -> tuple[float, float]:
        """`(2 c^2, 2)`."""
        return 2.0 * self.offset**2, 2.0

    @property
    def slope_at_zero(self) -> float:
        """`-1 / 2 c`."""
        return -0.5 / self.offset

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `-sqrt(beta + c^2)`."""
        root = _root(beta, self.offset, out)
        return np.negative(root, out=root)

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return `1 / sqrt(beta + c^2)`."""
        root = _root(beta, self.offset, out)
        return np.divide(1.0, root, out=root)

    def second_derivative(self, beta: Array, scale: Array | None = None) -> Array:
        """Return `1 / 4 sqrt(beta + c^2)^3`."""
        root = _root(beta, self.offset, None)
        return np.divide(0.25, root**3, out=root)

    @property
    def similarity(self) -> Laplacian:
        """The exponential of this kernel, without the offset, which only the slope needs."""
        return Laplacian(offset=_NEGLIGIBLE_OFFSET)


@dataclass(frozen=True)
class DistanceKernel(Multiquadric):
    """`f(beta) = -sqrt(beta + offset^2)` with an offset much smaller than the distances.

    J is then the distance covariance of X W and y; if y are numbers, their distance replaces
    their kernel. There is no width to choose.

    Parameters
    ----------
    offset : float or None, default None
        None means a fiftieth of the width "root" of a gaussian. The offset keeps the slope at
        beta = 0 finite.
    """

    offset: float | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check the offset unless it is None."""
        if self.offset is not None:
            super().__post_init__()

    @property
    def multiples(self) -> tuple[float, ...]:
        """The multiple 1 alone: no width to choose, but J has several maxima, and starts matter."""
        return () if self.offset is not None else (1.0,)

    def resolve(self, sample: Array, share: float = 1.0) -> DistanceKernel:
        """Return the kernel with a number for the offset."""
        if self.offset is not None:
            return self
        return replace(self, offset=_DISTANCE_OFFSET * scaled_median_distance(sample, share))


@dataclass(frozen=True)
class RelativeGaussian(PointwiseKernel):
    """`f(beta_ij) = exp(-beta_ij / 2 s_i s_j)`: each row i has a width s_i of its own.

    Parameters
    ----------
    neighbor : int
        s_i is the distance from row i to its `neighbor`-th nearest other row among the anchors,
        or to the farthest if there are fewer.
    anchors : (m, d) array, optional
        The rows to measure distances to. `fit` takes them from the standardised data: all rows
        up to 5,000, and a seeded sample above. A sample is thinner, which makes all widths
        larger by about the same factor.
    """

    neighbor: int = 7
    anchors: Array | None = field(default=None, repr=False, compare=False)

    pairing = DISTANCE
    per_row_width = True
    amplitude = -0.5
    slope_at_zero = -0.5

    def __post_init__(self) -> None:
        """Check the rank of the neighbour."""
        check_positive_int("`neighbor`", self.neighbor)

    def resolve(self, sample: Array, share: float = 1.0) -> RelativeGaussian:
        """Return the kernel with `sample` as anchors, unless it already has anchors."""
        return self if self.anchors is not None else replace(self, anchors=sample)

    def with_rows_mapped(self, lift: Callable[[Array], Array]) -> RelativeGaussian:
        """Return the kernel with its anchors replaced by `lift(anchors)`."""
        return self if self.anchors is None else replace(self, anchors=lift(self.anchors))

    def widths(self, rows: Array) -> Array:
        """Return the (n,) distances to the `neighbor`-th nearest distinct anchor."""
        if self.anchors is None:
            raise TypeError("RelativeGaussian has no anchors yet: call resolve(rows) first")
        if self.anchors.shape[1] != rows.shape[1]:
            raise ValueError(
                f"the anchors of this RelativeGaussian have {self.anchors.shape[1]} features, the "
                f"rows {rows.shape[1]}; its widths belong to the space they were taken in"
            )
        return neighbor_distances(rows, self.anchors, self.neighbor)

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `exp(-beta scale / 2)`."""
        exponent = np.multiply(beta, _require_scale(scale), out=out)
        return _exponential(np.multiply(exponent, -0.5, out=exponent))

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return `f scale`."""
        value = self.value(beta, scale, out)
        return np.multiply(value, _require_scale(scale), out=value)

    def second_derivative(self, beta: Array, scale: Array | None = None) -> Array:
        """Return `f scale^2 / 4`."""
        return 0.25 * self.value(beta, scale) * _require_scale(scale) ** 2


KERNELS: dict[str, type[PointwiseKernel]] = {
    "linear": Linear,
    "polynomial": Polynomial,
    "squared": Squared,
    "gaussian": Gaussian,
    "multiquadric": Multiquadric,
    "distance": DistanceKernel,
    "relative_gaussian": RelativeGaussian,
}


def as_kernel(kernel: str | Kernel) -> Kernel:
    """Return the kernel with this name in `KERNELS`, or the kernel itself."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    raise ValueError(
        f"`kernel` must be a Kernel or one of {', '.join(sorted(KERNELS))}; got {kernel!r}"
    )


def _require_scale(scale: Array | None) -> Array:
    if scale is None:
        raise TypeError("a local kernel needs the tile of 1 / (s_i s_j) as `scale`")
    return scale


def _root(beta: Array, offset: float, out: Array | None) -> Array:
    """Return `sqrt(beta + offset^2)`."""
    # Rounding can make beta negative, by more than c^2 if c is small.
    root = np.maximum(beta, 0.0, out=out)
    np.add(root, offset**2, out=root)
    return np.sqrt(root, out=root)


def _exponential(exponent: Array) -> Array:
    """Compute exp in place, clipped to at most 1: rounding can make an exponent far above 0.

    It is at least 1e-26 (1e-260 in double precision), which is negligible beside 1: subnormal
    numbers would make every product with them a hundred times slower.
    """
    np.clip(exponent, -600.0 if exponent.dtype == np.float64 else -60.0, 0.0, out=exponent)
    return np.exp(exponent, out=exponent)


def _power(base: Array, exponent: int) -> Array:
    # Repeated products are some thirty times faster than NumPy's general power.
    if exponent == 0:
        return full_like(base, 1.0, base)
    factor = base.copy() if exponent > 1 else base
    for _ in range(exponent - 1):
        np.multiply(base, factor, out=base)
    return base
