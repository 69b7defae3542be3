"""The exact engine on a device, such as a GPU: all pairs of rows, in a few large tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Problem
from ism_dask.engines.device_memory import MemoryPlan, WithinMemory
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.operator import Evaluation, PhiEvaluation, ProductEvaluation
from ism_dask.engines.row_facts import INVERSE_WIDTHS
from ism_dask.engines.tiles import coupling_of, ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.kernels import PointwiseKernel
from ism_dask.linalg.arrays import in_type, namespace, on_host, total, transposed
from ism_dask.rows.devices import Device

# The most rows on a side of a tile, beyond which tiles are no faster, and the fewest.
_MOST_ROWS, _LEAST_ROWS = 8192, 64
_DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some of the rows on the device, with what they bring to tiles.

    Attributes
    ----------
    places : slice
        Which of all rows they are.
    X : (b, d) array
    U : (b, r) array
        Their rows of the factor of Gamma.
    inverse_widths : (b, l) array
        For each of the l terms of the kernel with per-row widths.
    Z : (b, k) array or None
        The rows times W, in double precision.
    """

    places: slice
    X: Any
    U: Any
    inverse_widths: Any
    Z: Any = None


@dataclass(eq=False)
class _Sums:
    """J and the degrees `degree * Psi 1` (n,) of the pairs so far, on the device, in double."""

    objective: Any
    degrees: Any


class ExactOnDevice(WithinMemory, ExactEngine):
    """The sum over all pairs of rows on a device, in tiles with some thousand rows on a side.

    Rows that the device has no memory for come to it again for each tile. Distances between rows
    of X W are computed in double precision, so that they do not cancel, and all else in that of X.
    """

    _by_plan = ("_resident", "_places")

    def __init__(self, problem: Problem, q: int, device: Device) -> None:
        super().__init__(problem, q)
        self._device, self.note = device, f"on {device.title}"

    def _same_kind(self, problem: Problem) -> ExactOnDevice:
        other = ExactOnDevice(problem, self.q, self._device)
        other.note = self.note
        return other

    @ignore_overflow
    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        J, half = self._within_memory(partial(self._half_of_phi, W))
        return PhiEvaluation(J, half + half.T, **self._accuracy(J))

    @ignore_overflow
    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W."""
        J, product = self._within_memory(partial(self._phi_times, W))
        return ProductEvaluation(J, product, **self._accuracy(J))

    @ignore_overflow
    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        J = self._within_memory(partial(self._objective, W))
        return Evaluation(J, **self._accuracy(J))

    def _half_of_phi(self, W: Array) -> tuple[float, Array]:
        """Return J, and the matrix (d, d) whose sum with its transpose is Phi."""
        sums, half = self._no_sums(), self._zeros((self.problem.d, self.problem.d))
        for head, tails in self._pairs(W):
            crossed = self._device.xp.zeros_like(head.X)
            for tail in tails:
                crossed += self._slopes(sums, head, tail) @ tail.X
            half += self._model.unit * in_type(transposed(head.X) @ crossed, _DOUBLE)
        for rows in self._rows(W) if self._has_degrees else ():
            degrees = in_type(sums.degrees[rows.places], self._dtype)
            half += 0.5 * in_type(transposed(rows.X) @ (degrees[:, None] * rows.X), _DOUBLE)
        return float(sums.objective), on_host(half)

    def _phi_times(self, W: Array) -> tuple[float, Array]:
        """Return J and Phi W (d, k)."""
        sums, product = self._no_sums(), np.zeros(W.shape)
        moved = self._zeros((self.problem.shards.n_rows, W.shape[1]))
        for head, tails in self._pairs(W):
            for tail in tails:
                slopes = self._slopes(sums, head, tail)
                left, right = (in_type(each.Z, self._dtype) for each in (head, tail))
                moved[head.places, :] += slopes @ right
                moved[tail.places, :] += transposed(slopes) @ left
        for rows in self._rows(W):
            coupled = self._model.unit * moved[rows.places, :]
            inner = coupled + sums.degrees[rows.places][:, None] * rows.Z
            product += on_host(transposed(rows.X) @ in_type(inner, self._dtype))
        return float(sums.objective), product

    def _objective(self, W: Array) -> float:
        sums = self._no_sums()
        for head, tails in self._pairs(W):
            for tail in tails:
                self._slopes(sums, head, tail)
        return float(sums.objective)

    def _slopes(self, sums: _Sums, head: _Rows, tail: _Rows) -> Any:
        """Add the pairs of two sets of rows to J and the degrees; return `coupling Psi / unit`.

        Rows with themselves have half the weight: their pairs are visited in both orders.
        """
        is_diagonal = head.places == tail.places
        gamma = (0.5 if is_diagonal else 1.0) * (head.U * self._signs) @ transposed(tail.U)
        summed: Any = None
        for weight, term, beta, scale in self._terms(head, tail):
            ratio = term.value_per_unit_slope
            if ratio is None:
                value = in_type(term.value(beta), self._dtype)
                sums.objective += 2 * weight * _total(gamma * value)
            slopes = gamma * term.unit_slope(in_type(beta, self._dtype))
            if ratio is not None:
                sums.objective += 2 * weight * ratio * _total(slopes)
            if scale is not None:
                slopes *= in_type(scale, self._dtype)
            if term.pairing.degree:
                slopes = _without_diagonal(slopes) if is_diagonal else slopes
                degree = weight * term.amplitude * term.pairing.degree
                for each, axis in ((head, 1), (tail, 0)):
                    along = in_type(total(slopes, axis), _DOUBLE)
                    sums.degrees[each.places] += degree * along
            factor = weight * coupling_of(term) / self._model.unit
            summed = slopes if summed is None else summed + factor * slopes
            del beta, scale, slopes  # before the next term makes its own
        return summed

    def _terms(
        self, head: _Rows, tail: _Rows
    ) -> Iterator[tuple[float, PointwiseKernel, Any, Any | None]]:
        """Yield weight, term, beta (a, b) and the products of inverse widths, in double."""
        column = 0
        for weight, term in self.problem.kernel.terms:
            left, right = term.pairing.operands(head.Z)[0], term.pairing.operands(tail.Z)[1]
            beta, scale = term.pairing.beta(left, right), None
            if term.per_row_width:
                rows, columns = (each.inverse_widths[:, column] for each in (head, tail))
                scale, column = rows[:, None] * columns[None, :], column + 1
                beta = beta * scale
            yield weight, term, beta, scale

    def _pairs(self, W: Array) -> Iterator[tuple[_Rows, Iterator[_Rows]]]:
        """Yield each set of rows with itself and all later sets, so that each pair occurs once."""
        for number, head in enumerate(self._rows(W)):
            yield head, self._rows(W, number)

    def _rows(self, W: Array, first: int = 0) -> Iterator[_Rows]:
        """Yield the rows on the device, from a set of them on, with their products with W."""
        W = self._device.put(W.astype(self._dtype))
        for number in range(first, len(self._places)):
            resident = self._plan.resident
            rows = self._resident[number] if resident else self._loaded(self._places[number])
            yield replace(rows, Z=in_type(rows.X @ W, _DOUBLE))

    @cached_property
    def _resident(self) -> list[_Rows]:
        return list(map(self._loaded, self._places))

    def _loaded(self, places: slice) -> _Rows:
        put, loaded = self._device.put, self.problem.shards.load_rows(np.r_[places])
        U = self.problem.gamma.factor(loaded.facts[GAMMA_FACTS])
        widths = loaded.facts.get(INVERSE_WIDTHS, np.empty((len(U), 0)))
        return _Rows(places, put(loaded.X), put(U.astype(self._dtype)), put(widths))

    @cached_property
    def _plan(self) -> MemoryPlan:
        n = self.problem.shards.n_rows
        row_bytes = n * self._numbers * self._dtype.itemsize
        return MemoryPlan.of(row_bytes, self._device.free_bytes)

    @property
    def _numbers(self) -> int:
        """How many numbers a row has: those of X and of the factor of Gamma."""
        return self.problem.d + len(self.problem.gamma.signs)

    @property
    def _has_degrees(self) -> bool:
        return any(term.pairing.degree for _, term in self.problem.kernel.terms)

    @cached_property
    def _places(self) -> list[slice]:
        """Which rows are on a side of a tile."""
        n = self.problem.shards.n_rows
        most = max(_LEAST_ROWS, min(_MOST_ROWS, self._most_rows))
        edges = np.linspace(0, n, -(-n // most) + 1).astype(int).tolist()
        return [slice(*each) for each in pairwise(edges)]

    def _is_least(self) -> bool:
        return self._most_rows <= _LEAST_ROWS

    def _is_loaded(self) -> bool:
        return "_resident" in vars(self)

    @property
    def _most_rows(self) -> int:
        return self._plan.most_rows(self._numbers)

    def _no_sums(self) -> _Sums:
        return _Sums(self._zeros(()), self._zeros((self.problem.shards.n_rows,)))

    def _zeros(self, shape: tuple[int, ...]) -> Any:
        """Return zeros on the device, in double precision."""
        return self._device.put(np.zeros(shape))

    @cached_property
    def _signs(self) -> Any:
        return self._device.put(self.problem.gamma.signs.astype(self._dtype))

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self.problem.shards.dtype


def _total(tile: Any) -> Any:
    """Return the sum over a tile, of its rows in the precision of the tile, of these in double.

    Libraries copy a tile to double precision before they sum it there.
    """
    return total(in_type(total(tile, 1), _DOUBLE), 0)


def _without_diagonal(square: Any) -> Any:
    """Return a square matrix, overwritten, with zeros on its diagonal.

    In Phi the pairs of a row with itself cancel exactly, but for rounding: `x_i - x_i` is 0.
    """
    n, xp = square.shape[0], namespace(square)
    entries = xp.reshape(square, (-1,))
    entries[:: n + 1] = 0.0
    return xp.reshape(entries, (n, n))
