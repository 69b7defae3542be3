"""Choose the landmarks of one term of a kernel, and decline if too many are needed."""

from __future__ import annotations

import math

from ism_dask._types import Array
from ism_dask.engines.base import SAMPLE_ROWS, DeclinedError
from ism_dask.engines.lowrank.error_bound import TermRemainder
from ism_dask.engines.lowrank.landmarks import Nystrom, RandomLandmarks, unit_slope_diagonal
from ism_dask.engines.operator import overflow_error
from ism_dask.kernels import PointwiseKernel

# The most landmarks of a term: with more, tiles are faster for all but millions of rows.
_MOST_LANDMARKS = 2048
# The remainder allowed on the sample, as a share of that allowed on all rows: rows outside of the
# sample, which are no candidates, have larger remainders. If the sample is all rows, only rounding
# needs a margin.
_MARGIN, _WHOLE_MARGIN = 1 / 3, 0.99
# Before this many landmarks the decrease of the remainder does not predict its future. From
# _DEAR_ROWS rows up, where tiles are expensive, more landmarks are tried first: a remainder that
# decreases slowly at first may drop suddenly ...
_WARM_UP = 96
_LONG_WARM_UP, _DEAR_ROWS = 384, 20_000
# ... and since the decrease gets steeper, the engine declines only if the extrapolation needs this
# many times the most landmarks.
_PATIENCE = 8
# Tolerances below the machine epsilon get no allowance for rounding.
_EPS = 2.2e-16


class SampledLandmarks:
    """Landmarks from a sample, and from the rows with the largest remainders in each full pass.

    Parameters
    ----------
    term : PointwiseKernel
    Z : (s, q) array
        The projected sample, in float64.
    n_rows : int
        The number of all rows, from which the sample is drawn.
    tol : float
        The largest remainder over all rows, as a share of the trace.
    seed : list of int
    """

    def __init__(
        self, term: PointwiseKernel, Z: Array, n_rows: int, tol: float, seed: list[int]
    ) -> None:
        self._landmarks = RandomLandmarks(term, Z, seed)
        self._tol, self._sample, self._n_rows = tol, len(Z), n_rows
        self._map: Nystrom | None = None
        self._trace = float(unit_slope_diagonal(term, Z).sum())
        if not math.isfinite(self._trace):
            raise overflow_error()
        # Rows of whole weights are in the sample as often as these say; a large one is drawn.
        self._is_whole = n_rows <= len(Z) < SAMPLE_ROWS
        self._allowed = tol * (_WHOLE_MARGIN if self._is_whole else _MARGIN)
        self._most = min(_MOST_LANDMARKS, n_rows)
        self._warm_up = _WARM_UP if n_rows < _DEAR_ROWS else _LONG_WARM_UP
        self._history: list[tuple[int, float]] = []
        self._grow()

    @property
    def chosen(self) -> list[int]:
        """The indices of the landmarks in the sample, as long as no other rows were added."""
        return self._landmarks.chosen

    @property
    def map(self) -> Nystrom:
        """The Nystrom map of the landmarks."""
        if self._map is None or self._map.size != self._landmarks.size:
            self._map = self._landmarks.landmarks
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
        before = self._landmarks.size
        self._landmarks.admit(largest.points)
        self._allowed /= 2
        self._grow()
        if self._landmarks.size == before or before >= self._most:
            raise self._declined_error(
                remainder / trace, "all rows", "rounding leaves no more to choose"
            )

    @property
    def _share(self) -> float:
        """The remainder on the sample, as a share of its trace."""
        remainder = float(self._landmarks.left[: self._sample].sum())
        return remainder / self._trace if self._trace > 0 else 0.0

    def _grow(self) -> None:
        """Add landmarks until the remainder on the sample is at most the share allowed."""
        while (share := self._share) > self._allowed:
            m = self._landmarks.size
            self._history.append((m, share))
            needed = _landmarks_needed(self._history, self._allowed)
            if m >= self._most or (m >= self._warm_up and needed > _PATIENCE * self._most):
                raise self._declined_error(
                    share, f"a sample of {self._sample} rows", _extrapolation(needed)
                )
            if not self._landmarks.propose():
                return  # the remainder is rounding only: the pass over all rows decides

    def _declined_error(self, share: float, where: str, outlook: str) -> DeclinedError:
        return DeclinedError(
            f"{self._landmarks.size} landmarks leave {share:.2g} of the trace of "
            f"{self._landmarks.term.title} on {where}; the `tol` of the engine allows "
            f"{self._tol:g} ({outlook}, and at most {self._most} are tried). Take "
            "engine='exact' or 'auto', a wider kernel or a larger `tol` of the engine"
        )


def _landmarks_needed(history: list[tuple[int, float]], allowed: float) -> float:
    """Return how many landmarks are needed if the remainder keeps decreasing as a power of m.

    Return 0 if there are too few points to extrapolate from.
    """
    m, share = history[-1]
    half, before = min(history, key=lambda point: abs(point[0] - m / 2))
    if half in (0, m):
        return 0.0
    if share >= before:
        return math.inf
    power = math.log(before / share) / math.log(m / half)
    # Computed with logarithms, because the number itself may overflow a float.
    exponent = math.log(m) + math.log(share / allowed) / power
    return math.exp(exponent) if exponent < 700 else math.inf


def _extrapolation(needed: float) -> str:
    many = f"some {needed:.2g}" if needed < 1e9 else "more than a billion"
    return f"at this rate it would take {many}"
