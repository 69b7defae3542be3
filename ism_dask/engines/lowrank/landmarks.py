"""Landmarks of a term of a kernel, drawn by pivoted Cholesky until they leave little of it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.base import SAMPLE_ROWS, DeclinedError
from ism_dask.kernels import PointwiseKernel
from ism_dask.kernels.base import overflow_error
from ism_dask.kernels.pairing import DISTANCE, INNER, TOLERATED_ROUNDINGS
from ism_dask.linalg.cholesky import PivotedCholesky

# Proposals in a block: enough for matrix products, and few enough that most are accepted.
_BLOCK = 24
_UNIT = 0.5 * float(np.finfo(np.float64).eps)
# Bound on the error of an entry of the landmarks' matrix beside that of its beta, in roundings.
_ENTRY_ROUNDINGS = 128.0
# Bound on the relative change of the unit slope per change of beta by `resolution`.
_STEEPNESS = 4
# The most by which the remainder of a row grows, in units of the raise of the diagonal.
_GROWTH = 4.0
# If the landmarks' matrix is still indefinite, the raise of its diagonal is multiplied by this
# factor, up to this many times.
_RAISE_FACTOR, _MOST_RAISES = 30.0, 5
# The number of rows with the largest remainders that each measurement returns.
_N_LARGEST = 64
# The most landmarks of a term: this many, but no more than one for so many rows unless they are
# few. With more, tiles are faster for all but millions of rows.
_MOST_LANDMARKS, _ROWS_PER_LANDMARK, _FEW_LANDMARKS = 2048, 8, 500
# The remainder allowed on the sample, as a share of that allowed on all rows: rows outside of the
# sample, which are no candidates, have larger remainders. If the sample is all rows, only rounding
# needs a margin.
_MARGIN, _WHOLE_MARGIN = 1 / 3, 0.99
# Tolerances below the machine epsilon get no allowance for rounding.
_EPS = 2.2e-16


@dataclass(frozen=True)
class Nystrom:
    """A map to F with `F F^T <= unit_slope`, with equality at the landmarks up to rounding.

    The triangle (m, m) is the upper Cholesky factor of the matrix of the landmarks (m, q), to whose
    diagonal the number `raised` was added.
    """

    term: PointwiseKernel
    points: Array
    triangle: Array
    raised: float = 0.0

    @classmethod
    def from_landmarks(cls, term: PointwiseKernel, points: Array) -> Nystrom:
        """Return the Nystrom map of these landmarks (m, q).

        Their matrix is factored anew: a factor that grew step by step has accumulated rounding
        errors, which the remainders on the diagonal do not show. Its diagonal is raised by as
        much as rounding may have removed. That makes F slightly smaller, so that the remainder
        stays positive semi-definite.
        """
        matrix = unit_slope_between(term, points, points)
        size = float(np.diag(matrix).max(initial=0.0))
        # A bound on the error of unit slopes, in roundings.
        roundings = _ENTRY_ROUNDINGS
        if term.pairing is DISTANCE:
            cancelled = 4.0 * (points.shape[1] + 4) * float(INNER.own(points).max(initial=0.0))
            roundings += _STEEPNESS * 2.0 * min(TOLERATED_ROUNDINGS, cancelled / term.resolution)
        raised = len(points) * roundings * _UNIT * size
        for _ in range(_MOST_RAISES):
            diagonal = raised * np.eye(len(points))
            with suppress(scipy.linalg.LinAlgError):
                return cls(term, points, scipy.linalg.cholesky(matrix + diagonal), raised)
            raised *= _RAISE_FACTOR
        raise DeclinedError(
            f"the matrix of {len(points)} landmarks of {term.title} is not positive semi-definite, "
            "which its class declares it to be; take engine='exact'"
        )

    @property
    def rounding(self) -> float:
        """The most by which rounding, and the raise against it, enlarge the remainder of a row."""
        return _GROWTH * self.raised

    @property
    def size(self) -> int:
        """The number of landmarks."""
        return len(self.points)

    def __call__(self, Z: Array) -> Array:
        """Return F (b, m) for Z (b, q)."""
        if not self.size:
            return np.empty((len(Z), 0))
        slopes = unit_slope_between(self.term, Z, self.points)
        return scipy.linalg.solve_triangular(
            self.triangle, slopes.T, trans="T", overwrite_b=True, check_finite=False
        ).T


def unit_slope_between(term: PointwiseKernel, rows: Array, columns: Array) -> Array:
    """Return the unit slopes (a, b) between points `rows` (a, q) and `columns` (b, q)."""
    beta = term.pairing.between(rows, columns, resolution=term.resolution)
    return term.unit_slope(beta, out=beta)


def unit_slope_diagonal(term: PointwiseKernel, Z: Array) -> Array:
    """Return the (b,) unit slopes of each row of Z (b, q) with itself."""
    return term.unit_slope(term.pairing.own(Z))


class LargestRemainders:
    """The projected rows (t, q) with the largest remainders (t,) among some rows, descending.

    Addition merges two such sets.
    """

    def __init__(self, left: Array, rows: Array, points: Array) -> None:
        # The row index breaks ties: the result must not depend on how rows were cut into shards.
        order = np.lexsort((rows, -left))[:_N_LARGEST]
        self.left, self.rows, self.points = left[order], rows[order], points[order]

    def __add__(self, other: LargestRemainders) -> LargestRemainders:
        return LargestRemainders(
            np.concatenate([self.left, other.left]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.points, other.points]),
        )


# The trace of a term's unit slope, the trace of the remainder, and the largest remainders.
TermRemainder: TypeAlias = tuple[float, float, LargestRemainders]


class SampledLandmarks:
    """Landmarks from a sample, and from the rows with the largest remainders in each full pass.

    They are drawn at random, with probabilities proportional to the remainders. This is randomly
    pivoted Cholesky, accelerated: proposals come in blocks, and a proposal is accepted with the
    share of its remainder that the accepted ones of its block leave. The choice is a function of
    the points and the seed.

    Z (s, q) is the projected sample of all rows, in float64. `tol` is the largest remainder over
    all rows, as a share of the trace.
    """

    def __init__(
        self, term: PointwiseKernel, Z: Array, n_rows: int, tol: float, seed: list[int]
    ) -> None:
        self._term, self._points, self._rng = term, Z, np.random.default_rng(seed)
        self._tol, self._sample, self._n_rows = tol, len(Z), n_rows
        self._map: Nystrom | None = None
        diagonal = unit_slope_diagonal(term, Z)
        self._cholesky = PivotedCholesky(self._columns, diagonal)
        self._trace = float(diagonal.sum())
        if not math.isfinite(self._trace):
            raise overflow_error()
        # Rows of whole weights are in the sample as often as these say; a large one is drawn.
        self._is_whole = n_rows <= len(Z) < SAMPLE_ROWS
        self._allowed = tol * (_WHOLE_MARGIN if self._is_whole else _MARGIN)
        few = min(_FEW_LANDMARKS, n_rows)
        self._most = min(_MOST_LANDMARKS, max(few, n_rows // _ROWS_PER_LANDMARK))
        self._grow()

    @property
    def chosen(self) -> list[int]:
        """The indices of the landmarks in the sample, as long as no other rows were added."""
        return self._cholesky.pivots

    @property
    def map(self) -> Nystrom:
        """The Nystrom map of the landmarks."""
        if self._map is None or self._map.size != self._cholesky.size:
            self._map = Nystrom.from_landmarks(self._term, self._points[self.chosen])
        return self._map

    def accepts(self, found: TermRemainder) -> bool:
        """Return whether the remainder is at most `tol` of the trace, or only rounding."""
        if self._is_whole and self._share <= self._allowed:
            return True
        trace, remainder, _ = found
        rounding = self._n_rows * self.map.rounding if self._tol >= _EPS else 0.0
        return remainder <= max(self._tol * trace, rounding)

    def improve(self, found: TermRemainder) -> None:
        """Add the rows with the largest remainders, and allow half the remainder on the sample."""
        trace, remainder, largest = found
        before, Z = self._cholesky.size, largest.points
        mapped = self.map(Z)
        self._points = np.concatenate([self._points, Z])
        rows = self._cholesky.append(mapped, unit_slope_diagonal(self._term, Z))
        self._cholesky.add(rows, self._rng.random(len(rows)))
        self._allowed /= 2
        self._grow()
        if self._cholesky.size == before or before >= self._most:
            raise self._declined_error(remainder / trace, "all rows")

    def _columns(self, rows: Array) -> Array:
        return unit_slope_between(self._term, self._points, self._points[rows])

    @property
    def _share(self) -> float:
        """The remainder on the sample, as a share of its trace."""
        remainder = float(self._cholesky.left[: self._sample].sum())
        return remainder / self._trace if self._trace > 0 else 0.0

    def _grow(self) -> None:
        """Add landmarks until the remainder on the sample is at most the share allowed."""
        while (share := self._share) > self._allowed:
            if self._cholesky.size >= self._most:
                raise self._declined_error(share, f"a sample of {self._sample} rows")
            left = self._cholesky.left
            block = self._rng.choice(len(left), _BLOCK, p=left / left.sum())
            if not self._cholesky.add(block, self._rng.random(_BLOCK)):
                return  # the remainder is rounding only: the pass over all rows decides

    def _declined_error(self, share: float, where: str) -> DeclinedError:
        return DeclinedError(
            f"{self._cholesky.size} landmarks leave {share:.2g} of the trace of "
            f"{self._term.title} on {where}; the `tol` of the engine allows "
            f"{self._tol:g} (at most {self._most} landmarks are tried). Take "
            "engine='exact' or 'auto', a wider kernel or a larger `tol` of the engine"
        )
