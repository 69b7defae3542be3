"""How landmarks of one term are chosen, and when that is given up."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from ism_dask._types import Array
from ism_dask.engines.base import DeclinedError
from ism_dask.engines.lowrank.error_bound import TermRemainder
from ism_dask.engines.lowrank.pivoted_cholesky import Nystrom, PivotedCholesky, shape_diagonal
from ism_dask.engines.lowrank.row_sums import FeatureMap
from ism_dask.engines.operator import overflow_error
from ism_dask.kernels import PointwiseKernel

# Landmarks of a term at most: beyond, tiles are the faster way for all but millions of rows.
_MOST = 2048
# What may be left on the sample, as a share of what may be left on all rows: rows that were not
# there to choose among keep more. Where the sample is all rows, only rounding is to be feared.
_MARGIN, _WHOLE_MARGIN = 1 / 3, 0.99
# Before so many landmarks the fall of what is left says nothing about its future. Where tiles are
# dear, from so many rows up, more are tried: what falls slowly at first may fall off a cliff ...
_WARM_UP = 96
_LONG_WARM_UP, _DEAR_ROWS = 384, 20_000
# ... and as it gets steeper on the way, the end has to be this far off to give up.
_PATIENCE = 8
# What rows keep of what the diagonal of the landmarks' matrix was raised by, at most. Tolerances
# below the least share that a float tells apart are refused.
_OF_RAISED, _EPS = 4.0, 2.2e-16


class TermFactor(ABC):
    """How one term of a kernel is expanded."""

    @property
    @abstractmethod
    def map(self) -> FeatureMap:
        """What makes F, as things stand."""

    @abstractmethod
    def accepts(self, found: TermRemainder) -> bool:
        """Say whether what is left on all rows is little enough."""

    @abstractmethod
    def improve(self, found: TermRemainder) -> None:
        """Leave less."""


class ExactFactor(TermFactor):
    """A finite map, which leaves nothing."""

    def __init__(self, features: FeatureMap) -> None:
        self._features = features

    @property
    def map(self) -> FeatureMap:
        """The monomials."""
        return self._features

    def accepts(self, found: TermRemainder) -> bool:
        """Say yes."""
        return True

    def improve(self, found: TermRemainder) -> None:
        """Do nothing: there is nothing left."""


class SampledLandmarks(TermFactor):
    """Landmarks chosen among a sample, and the worst rows of each look at all of them.

    Parameters
    ----------
    term : PointwiseKernel
    Z : (s, q) array
        The projected sample, in float64.
    n_rows : int
        How many rows the sample is of.
    tol : float
        What may be left of the trace over all rows, as a share.
    seed : list of int
    """

    def __init__(
        self, term: PointwiseKernel, Z: Array, n_rows: int, tol: float, seed: list[int]
    ) -> None:
        self._cholesky = PivotedCholesky(term, Z, seed)
        self._tol, self._sample, self._n_rows = tol, len(Z), n_rows
        self._map: Nystrom | None = None
        self._trace = float(shape_diagonal(term, Z).sum())
        if not math.isfinite(self._trace):
            raise overflow_error()
        self._allowed = tol * (_WHOLE_MARGIN if len(Z) == n_rows else _MARGIN)
        self._most = min(_MOST, n_rows)
        self._warm_up = _WARM_UP if n_rows < _DEAR_ROWS else _LONG_WARM_UP
        self._history: list[tuple[int, float]] = []
        self._grow()

    @property
    def map(self) -> Nystrom:
        """The map that the landmarks make."""
        if self._map is None or self._map.size != self._cholesky.size:
            self._map = self._cholesky.landmarks
        return self._map

    def accepts(self, found: TermRemainder) -> bool:
        """Return whether no more than the share `tol` is left, or nothing but rounding."""
        trace, left, _ = found
        rounding = _OF_RAISED * self._n_rows * self.map.raised if self._tol >= _EPS else 0.0
        return left <= max(self._tol * trace, rounding)

    def improve(self, found: TermRemainder) -> None:
        """Take the worst rows in, and leave half as much on the sample."""
        trace, left, worst = found
        before = self._cholesky.size
        self._cholesky.admit(worst.points)
        self._allowed /= 2
        self._grow()
        if self._cholesky.size == before or before >= self._most:
            raise self._declined(left / trace, "all rows", "rounding leaves no more to choose")

    @property
    def _share(self) -> float:
        """What is left on the sample."""
        left = float(self._cholesky.left[: self._sample].sum())
        return left / self._trace if self._trace > 0 else 0.0

    def _grow(self) -> None:
        """Take landmarks until no more than the share allowed is left on the sample."""
        while (share := self._share) > self._allowed:
            m = self._cholesky.size
            self._history.append((m, share))
            needed = _landmarks_needed(self._history, self._allowed)
            if m >= self._most or (m >= self._warm_up and needed > _PATIENCE * self._most):
                raise self._declined(share, f"a sample of {self._sample} rows", _outlook(needed))
            if not self._cholesky.propose():
                return  # nothing but rounding is left: the look at all rows will judge

    def _declined(self, share: float, where: str, outlook: str) -> DeclinedError:
        return DeclinedError(
            f"{self._cholesky.size} landmarks leave {share:.2g} of the trace of "
            f"{self._cholesky.term.title} on {where}; `engine_tol` allows "
            f"{self._tol:g} ({outlook}, and at most {self._most} are tried). Take "
            "engine='exact' or 'auto', a wider kernel or a larger `engine_tol`"
        )


def _landmarks_needed(history: list[tuple[int, float]], allowed: float) -> float:
    """Return how many landmarks it would take if what is left went on falling as a power of m.

    0 while nothing can be said, at the beginning.
    """
    m, share = history[-1]
    half, before = min(history, key=lambda point: abs(point[0] - m / 2))
    if half in (0, m):
        return 0.0
    if share >= before:
        return math.inf
    power = math.log(before / share) / math.log(m / half)
    # In logarithms: the number itself may be beyond what a float holds.
    exponent = math.log(m) + math.log(share / allowed) / power
    return math.exp(exponent) if exponent < 700 else math.inf


def _outlook(needed: float) -> str:
    many = f"some {needed:.2g}" if needed < 1e9 else "more than a billion"
    return f"at this rate it would take {many}"
