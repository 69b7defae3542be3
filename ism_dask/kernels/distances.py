"""Kernels of distances: exponentials, negative distances, and the affinity of rows in a graph."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import check_positive_int, squarable_float
from ism_dask.kernels.base import Kernel, PointwiseKernel, Proportional, conic_sum
from ism_dask.kernels.pairing import DISTANCE, median_distance, neighbor_distances

# The names of the rules that compute a width from the data.
WIDTH_RULES = ("root", "median")
# An offset too small to round off the tip of the kernel at beta = 0.
_NEGLIGIBLE_OFFSET = 1e-6
# The default offset of the distance kernel, as a share of the distance between rows.
_DISTANCE_OFFSET = 0.02
# The width of the gaussian between rows of X W, as a share of their median distance. A gaussian
# as wide as the one on all features hardly resolves neighbourhoods in the few columns of X W.
# Shares from 0.33 to 0.4 gave the best result on every data set.
_WIDTH_SHARE = 0.375


@dataclass(frozen=True)
class SharedWidth(PointwiseKernel):
    """A kernel of squared distances with one width for all rows."""

    sigma: float | str = "root"

    pairing = DISTANCE
    slope_is_psd = True
    positive_definite = True

    def __post_init__(self) -> None:
        """Check the width."""
        if not (isinstance(self.sigma, str) and self.sigma in WIDTH_RULES):
            squarable_float("`sigma`", self.sigma, 'or "root" or "median"')

    def resolve(self, sample: Array, share: float = 1.0) -> Self:
        """Return the kernel with a number for sigma."""
        if self.sigma == "root":
            return replace(self, sigma=_scaled_median_distance(sample, share))
        return replace(self, sigma=median_distance(sample)) if self.sigma == "median" else self

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


class _Exponential(PointwiseKernel):
    """`f(beta) = exp(-rate * beta)` of squared distances."""

    pairing = DISTANCE

    @property
    @abstractmethod
    def _rate(self) -> float: ...

    @property
    def amplitude(self) -> float:
        """Minus the rate."""
        return -self._rate

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return `exp(-rate * beta)`."""
        return _clipped_exponential(np.multiply(beta, -self._rate, out=out))

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return f itself."""
        return self.value(beta, out)


@dataclass(frozen=True)
class Gaussian(_Exponential, SharedWidth):
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


@dataclass(frozen=True)
class RelativeGaussian(_Exponential):
    """`f(beta_ij) = exp(-beta_ij / 2 s_i s_j)`: each row i has a width s_i of its own.

    Parameters
    ----------
    neighbor : int, default 7
        s_i is the distance from row i to its `neighbor`-th nearest other row among the anchors,
        or to the farthest if there are fewer.
    anchors : (m, d) array, optional
        The rows to measure distances to. `fit` takes them from the standardised data: all rows
        up to 5,000, and a seeded sample above. A sample is thinner, which makes all widths
        larger by about the same factor.
    """

    neighbor: int = 7
    anchors: Array | None = field(default=None, repr=False, compare=False)

    per_row_width = True
    _rate = 0.5

    def __post_init__(self) -> None:
        """Check the rank of the neighbour."""
        check_positive_int("`neighbor`", self.neighbor)

    def resolve(self, sample: Array, share: float = 1.0) -> RelativeGaussian:
        """Return the kernel with `sample` as anchors, unless it already has anchors."""
        return self if self.anchors is not None else replace(self, anchors=sample)

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


@dataclass(frozen=True)
class Laplacian(SharedWidth):
    """`f(beta) = exp(-sqrt(2 (beta + c^2)) / sigma)` of squared distances.

    This is the exponential of a multiquadric. As a density of distances its standard deviation
    is sigma, like that of a gaussian with this sigma.

    Parameters
    ----------
    sigma : float, "root" or "median", default "root"
        The width, by the rules of `Gaussian`.
    offset : float, default 1.0
        c, above 0.
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

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return `exp(-sqrt(2 (beta + c^2)) / sigma)`."""
        root = _root_of(beta, self.offset, out)
        exponent = np.multiply(root, -sqrt(2.0) / self._width, out=root)
        return _clipped_exponential(exponent)

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return `f / sqrt(beta + c^2)`."""
        root = _root_of(beta, self.offset, None)
        exponent = np.multiply(root, -sqrt(2.0) / self._width, out=out)
        value = np.exp(exponent, out=out)
        return np.divide(value, root, out=value)


@dataclass(frozen=True)
class Squared(Proportional):
    """`f(beta) = -beta` of squared distances.

    The paper prints this kernel without the minus. Without it the kernel is not positive
    semi-definite, and its maximum is the null space of X. With it the kernel is conditionally
    positive definite, and since Gamma is centred the objective is a true HSIC.
    """

    pairing = DISTANCE
    amplitude = -1.0


@dataclass(frozen=True)
class Multiquadric(PointwiseKernel):
    """`f(beta) = -sqrt(beta + offset^2)` of squared distances.

    The minus is there for the reason given at `Squared`.

    Parameters
    ----------
    offset : float, default 1.0
        Above 0.
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

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return `-sqrt(beta + c^2)`."""
        root = _root_of(beta, self.offset, out)
        return np.negative(root, out=root)

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return `1 / sqrt(beta + c^2)`."""
        root = _root_of(beta, self.offset, out)
        return np.reciprocal(root, out=root)

    @property
    def similarity(self) -> Laplacian:
        """The exponential of this kernel, without the offset, which only the slope needs."""
        return Laplacian(offset=_NEGLIGIBLE_OFFSET)


@dataclass(frozen=True)
class DistanceKernel(Multiquadric):
    """`f(beta) = -sqrt(beta + offset^2)` with an offset much smaller than the distances.

    If y are classes, J is n^2 times the squared distance covariance of X W and y. Numbers keep the
    kernel that `target` names; `dependence_test` takes their distances. There is no width to
    choose.

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

    def resolve(self, sample: Array, share: float = 1.0) -> DistanceKernel:
        """Return the kernel with a number for the offset."""
        if self.offset is not None:
            return self
        return replace(self, offset=_DISTANCE_OFFSET * _scaled_median_distance(sample, share))


@dataclass(frozen=True)
class Affinity:
    """The affinity between two rows: the kernel that weighs the edges of the graph.

    Degrees need non-negative values, and a spectral embedding needs a positive semi-definite
    matrix. Only the gaussian has both. `-sqrt(beta + c^2)` is replaced by its exponential, which
    is positive semi-definite, like that of every conditionally positive definite kernel
    (Schoenberg). All other kernels, and sums that contain one, are replaced by a gaussian of the
    rows. For `-beta` this gaussian is its exponential too; for a linear kernel it is the
    exponential of the distances that belong to it.

    Attributes
    ----------
    whole : Kernel
        The resolved kernel between rows of X, and between rows of X W unless `narrow`.
    narrow : bool
        Whether rows of X W get a gaussian of their own width.
    """

    whole: Kernel
    narrow: bool = False

    @classmethod
    def for_kernel(cls, kernel: Kernel, sample: Array) -> Affinity:
        """Return the affinity for a kernel; widths are computed from rows of X, `sample` (m, d)."""
        weighted = [(weight, term.similarity) for weight, term in kernel.terms]
        usable = [(weight, term) for weight, term in weighted if term is not None]
        whole = conic_sum(usable) if len(usable) == len(weighted) else Gaussian()
        are_gaussian = [isinstance(term, Gaussian | RelativeGaussian) for _, term in kernel.terms]
        return cls(whole.resolve(sample), all(are_gaussian))

    def between(self, projected: Array) -> Kernel:
        """Return the kernel between rows of X W; its width is computed from `projected` (m, q)."""
        # If W maps all rows to one point, no width can be computed.
        if not self.narrow or not np.ptp(projected, axis=0).any():
            return self.whole
        return Gaussian(_WIDTH_SHARE * median_distance(projected))


def _root_of(beta: Array, offset: float, out: Array | None) -> Array:
    """Return `sqrt(beta + offset^2)`."""
    # Rounding can make beta negative, by more than c^2 if c is small.
    root = np.clip(beta, 0.0, None, out=out)
    root += offset**2
    return np.sqrt(root, out=root)


def _clipped_exponential(exponent: Array) -> Array:
    """Return exp, clipped to at most 1: rounding can make an exponent far above 0.

    The exponent is overwritten. The result is at least exp(-60), or exp(-600) in double precision,
    which is negligible beside 1: subnormal numbers would make every product with them a hundred
    times slower.
    """
    least = -600.0 if exponent.dtype == np.float64 else -60.0
    return np.exp(np.clip(exponent, least, 0.0, out=exponent), out=exponent)


def _scaled_median_distance(sample: Array, share: float) -> float:
    """Return the median distance of rows (m, d) times the root of the share of columns in use.

    Standardised columns contribute alike to squared distances, so this is the typical distance
    between rows of q columns.
    """
    return sqrt(share) * median_distance(sample, 'sigma="root"')
