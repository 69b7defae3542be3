"""The kernels themselves, and the registry that the tests walk.

A new kernel is one class here and one line in `KERNELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp, sqrt
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import squarable, whole
from ism_dask.kernels.base import Kernel, PointwiseKernel, full_like
from ism_dask.kernels.monomials import Monomials
from ism_dask.kernels.pairing import DISTANCE, INNER
from ism_dask.kernels.widths import median_distance, neighbor_distances

# An offset that rounds nothing off.
_TIP = 1e-6
# The offset of the distance kernel, as a share of the distance between rows.
_SMALL = 0.02


def root_distance(sample: Array, share: float) -> float:
    """Return the median distance of rows (m, d) times the root of the share of columns that stay.

    Standardised columns add alike to squared distances: so far apart are rows of q columns.
    """
    return sqrt(share) * median_distance(sample, 'sigma="root"')


def _whole_distance(sample: Array, share: float) -> float:  # noqa: ARG001  all columns count
    return median_distance(sample)


# Multiples of the width "root" that a selection tries.
_MULTIPLES = (2.0, 1.0, 0.5, 0.25)

# Widths that the data give, by name.
WIDTHS: dict[str, Callable[[Array, float], float]] = {
    "root": root_distance,
    "median": _whole_distance,
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

    The paper prints it without the minus. That is not positive semi-definite and its maximum is
    the null space of X; with the minus it is conditionally positive definite, and as Gamma is
    centred the objective is a true HSIC.
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
        whole("`degree`", self.degree)
        if self.offset != 0:
            squarable("`offset`", self.offset, "or 0")

    @property
    def amplitude(self) -> float:
        """`p`."""
        return float(self.degree)

    @property
    def slope_at_zero(self) -> float:
        """`p c^(p-1)`, or 1 where that is 0: f' is positive beside it for even p - 1."""
        return float(self.degree * self.offset ** (self.degree - 1)) or 1.0

    @property
    def roundings(self) -> int:  # type: ignore[override]
        """Some for each factor of a power."""
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
class _OneWidth(PointwiseKernel):
    """A kernel of squared distances with one width for all rows."""

    sigma: float | str = "root"

    pairing = DISTANCE
    slope_is_psd = True

    def __post_init__(self) -> None:
        """Check the width."""
        if not (isinstance(self.sigma, str) and self.sigma in WIDTHS):
            squarable("`sigma`", self.sigma, 'or "root" or "median"')

    def resolve(self, sample: Array, share: float = 1.0) -> Self:
        """Return the kernel with a number for sigma."""
        if not isinstance(self.sigma, str):
            return self
        return replace(self, sigma=WIDTHS[self.sigma](sample, share))

    @property
    def multiples(self) -> tuple[float, ...]:
        """Several, from wide to narrow, where sigma is the rule of thumb "root"."""
        return _MULTIPLES if self.sigma == "root" else ()

    def widened(self, factor: float) -> Self:
        """Return the kernel with a width so many times larger."""
        return replace(self, sigma=factor * self._width)

    @property
    def _width(self) -> float:
        if isinstance(self.sigma, str):
            name = type(self).__name__
            raise TypeError(f"{name}(sigma={self.sigma!r}) has no width yet: call resolve(rows)")
        return self.sigma

    @property
    def similarity(self) -> Self:
        """Itself: it is never negative, and its matrix is definite."""
        return self


@dataclass(frozen=True)
class Gaussian(_OneWidth):
    """`f(beta) = exp(-beta / 2 sigma^2)` of squared distances.

    Parameters
    ----------
    sigma : float, "root" or "median", default "root"
        The width. "median" is the median distance between the standardised rows, as in the paper.
        "root" is that times sqrt(q / d): about the distance between rows that q columns leave.
        Clusterers and `hsic` take all columns: both widths are the same there.
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
class Laplacian(_OneWidth):
    """`f(beta) = exp(-sqrt(2 (beta + c^2)) / sigma)` of squared distances.

    The exponential of a multiquadric. As a density of distances it has the deviation sigma, as a
    gaussian of that sigma has.
    """

    offset: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters: at offset 0 the slope at beta = 0 is infinite."""
        super().__post_init__()
        squarable("`offset`", self.offset)

    @property
    def amplitude(self) -> float:
        """`-1 / (sqrt(2) sigma)`."""
        return -sqrt(0.5) / self._width

    @property
    def slope_at_zero(self) -> float:
        """The slope at beta = 0."""
        return self.amplitude * exp(-sqrt(2.0) * self.offset / self._width) / self.offset

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return f."""
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

    With the minus, for the reason that `Squared` gives.
    """

    offset: float = 1.0

    pairing = DISTANCE
    slope_is_psd = True
    amplitude = -0.5

    def __post_init__(self) -> None:
        """Check the offset: at 0 the slope at beta = 0 is infinite."""
        squarable("`offset`", self.offset)

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
        """Its exponential, without the offset: that is there for the sake of the slope alone."""
        return Laplacian(offset=_TIP)


@dataclass(frozen=True)
class DistanceKernel(Multiquadric):
    """`f(beta) = -sqrt(beta + offset^2)` with an offset that is small beside the distances.

    J is then the distance covariance of X W and y (with the distance of y in place of its kernel,
    where y are numbers). There is no width to choose.

    Parameters
    ----------
    offset : float or None, default None
        None: a fiftieth of the width "root" of a gaussian. It keeps the slope at beta = 0 finite.
    """

    offset: float | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check the offset, if there is one."""
        if self.offset is not None:
            super().__post_init__()

    @property
    def multiples(self) -> tuple[float, ...]:
        """One: it has no width to choose, but several maxima, and starts matter."""
        return () if self.offset is not None else (1.0,)

    def resolve(self, sample: Array, share: float = 1.0) -> DistanceKernel:
        """Return the kernel with a number for the offset."""
        if self.offset is not None:
            return self
        return replace(self, offset=_SMALL * root_distance(sample, share))


@dataclass(frozen=True)
class RelativeGaussian(PointwiseKernel):
    """`f(beta_ij) = exp(-beta_ij / 2 s_i s_j)`: each row has the width of its surroundings.

    Parameters
    ----------
    neighbor : int
        s_i is the distance from row i to its `neighbor`-th nearest other row among the anchors,
        to the farthest where there are fewer.
    anchors : (m, d) array, optional
        The rows to measure against. Taken from the standardised data at fit: all of them up to
        5,000 rows, a seeded sample above (the widths then grow with the thinning, all alike).
    """

    neighbor: int = 7
    anchors: Array | None = field(default=None, repr=False, compare=False)

    pairing = DISTANCE
    per_row_width = True
    amplitude = -0.5
    slope_at_zero = -0.5

    def __post_init__(self) -> None:
        """Check the rank of the neighbour."""
        whole("`neighbor`", self.neighbor)

    def resolve(self, sample: Array, share: float = 1.0) -> RelativeGaussian:
        """Return the kernel with `sample` as anchors, unless it has some."""
        return self if self.anchors is not None else replace(self, anchors=sample)

    def with_rows_mapped(self, lift: Callable[[Array], Array]) -> RelativeGaussian:
        """Return the kernel with its anchors lifted."""
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
        exponent = np.multiply(beta, _given(scale), out=out)
        return _exponential(np.multiply(exponent, -0.5, out=exponent))

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return `f scale`."""
        value = self.value(beta, scale, out)
        return np.multiply(value, _given(scale), out=value)

    def second_derivative(self, beta: Array, scale: Array | None = None) -> Array:
        """Return `f scale^2 / 4`."""
        return 0.25 * self.value(beta, scale) * _given(scale) ** 2


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
    """Return the kernel that a name of `KERNELS`, or a kernel, stands for."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    raise ValueError(
        f"`kernel` must be a Kernel or one of {', '.join(sorted(KERNELS))}; got {kernel!r}"
    )


def _given(scale: Array | None) -> Array:
    if scale is None:
        raise TypeError("a local kernel needs the tile of 1 / (s_i s_j) as `scale`")
    return scale


def _root(beta: Array, offset: float, out: Array | None) -> Array:
    """Return `sqrt(beta + offset^2)`."""
    # Rounding can leave beta below zero, by more than c^2 where c is small.
    root = np.maximum(beta, 0.0, out=out)
    np.add(root, offset**2, out=root)
    return np.sqrt(root, out=root)


def _exponential(exponent: Array) -> Array:
    """Return exp in place, at most 1: rounding can leave an exponent far above 0.

    It is at least 1e-26 (1e-260 in double precision), next to 1 nothing: numbers below the normal
    range make every product with them a hundred times slower.
    """
    np.clip(exponent, -600.0 if exponent.dtype == np.float64 else -60.0, 0.0, out=exponent)
    return np.exp(exponent, out=exponent)


def _power(base: Array, exponent: int) -> Array:
    # Repeated products: NumPy's general power is some thirty times slower than these.
    if exponent == 0:
        return full_like(base, 1.0, base)
    factor = base.copy() if exponent > 1 else base
    for _ in range(exponent - 1):
        np.multiply(base, factor, out=base)
    return base
