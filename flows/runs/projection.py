"""Project a table, or a piece of one, onto the new features of a model, in any process.

Workers of a cluster import this module. Dask puts a folder on their path that may have a `storage`
of its own, so names come from the modules of our `storage`, not from the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flows.errors import FlowError
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.rows.moments import ColumnMoments
from storage.dataset import ZarrRows
from storage.models import SavedTransformer
from storage.tables.encoding import EncodedRows, Problems
from storage.tables.new_rows import encode_new_rows
from storage.tables.output_files import PartWriter
from storage.tables.schema import TableSchema
from storage.tables.sources import Part, matrix_table

Array = NDArray[Any]
# Rows of float32 and the same rows of float64 differ by less than this share of the range.
_ROUNDING = 1e-5


class Drift:
    """How far new rows are from those that a model was fitted to, in its new features.

    Parameters
    ----------
    model : SavedTransformer
        Nothing is reported of one that was saved without statistics.
    """

    def __init__(self, model: SavedTransformer) -> None:
        self._learned = model.statistics
        self._names = model.get_feature_names_out()
        self._outside = np.zeros(model.n_components, dtype=np.int64)
        self._new: ColumnMoments | None = None

    def add(self, new: Array) -> None:
        """Add the new features of some rows (m, q)."""
        if self._learned is None or not len(new):
            return
        learned = self._learned
        slack = _ROUNDING * (learned.high - learned.low)
        outside = (new < learned.low - slack) | (new > learned.high + slack)
        # The squares of numbers that are barely floats are not.
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(np.count_nonzero(outside, axis=0), ColumnMoments.of(new))

    def merge(self, other: Drift) -> None:
        """Add the rows of a later part of the table."""
        self._add(other._outside, other._new)

    def _add(self, outside: Array, moments: ColumnMoments | None) -> None:
        self._outside += outside
        if self._new is not None and moments is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._new += moments
        else:
            self._new = self._new or moments

    def report(self) -> list[dict[str, Any]]:
        """Return for each new feature the share of rows out of range, and the shift of the mean.

        `mean_shift` is in units of the deviation among the rows that the model was fitted to.
        """
        if self._learned is None or self._new is None:
            return []
        shift = self._new.mean - self._learned.mean
        deviation = np.maximum(self._learned.deviation, np.finfo(np.float64).tiny)
        shares, shifts = self._outside / self._new.n_rows, shift / deviation
        return [
            {
                "feature": number,
                "name": name,
                "share_outside": float(shares[number]),
                "mean_shift": float(shifts[number]),
            }
            for number, name in enumerate(self._names)
        ]


@dataclass(eq=False)
class ProjectedRows:
    """What is known of rows that were projected."""

    drift: Drift
    problems: Problems  # why rows do not fit the schema
    read: int = 0
    rows: int = 0  # those that were projected; the others lack a value
    too_large: int = 0  # those whose projection overflows, ...
    first_too_large: int = 0  # ... and the number of the first of them among those read

    def add(self, batch: EncodedRows, new: Array) -> None:
        """Add the new features (m, q) of a batch of rows."""
        finite = np.isfinite(new).all(axis=1)
        overflowing = np.flatnonzero(~batch.left_out)[~finite]
        if len(overflowing):
            self._count_too_large(len(overflowing), int(overflowing[0]))
        self.drift.add(new[finite])
        self.read += len(batch.left_out)
        self.rows += len(new)

    def merge(self, other: ProjectedRows) -> None:
        """Add later rows."""
        if other.too_large:
            self._count_too_large(other.too_large, other.first_too_large)
        self.drift.merge(other.drift)
        self.problems.merge(other.problems)
        self.read += other.read
        self.rows += other.rows

    def check(self, source: str) -> None:
        """Raise an error that lists all that does not fit in the rows of `source`, if any."""
        self.problems.check(source)
        if self.too_large:
            raise FlowError(
                f"{self.too_large:,} rows of {source}, the first number "
                f"{self.first_too_large + 1:,}, hold values too large to project; correct them or "
                "leave these rows out"
            )

    def _count_too_large(self, rows: int, first: int) -> None:
        """Count rows too large to project; `first` is counted from the last row that was added."""
        if not self.too_large:
            self.first_too_large = self.read + first
        self.too_large += rows


def read_range(
    rows: ZarrRows, names: Sequence[str], first: int, stop: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data set from number `first` to before `stop`, with these columns."""
    for start in range(first, stop, rows.chunk_rows):
        values = rows.read(start, min(start + rows.chunk_rows, stop))
        yield from matrix_table(values, names).select(columns).to_batches()


@dataclass(frozen=True, eq=False)
class Projector:
    """Projects tables by a model; it can be pickled for other processes."""

    model: SavedTransformer  # with no more than is needed
    schema: TableSchema  # of the table that the model was fitted to
    passed: tuple[str, ...]  # columns that are passed through
    ignore_unseen: bool  # whether a level that the model has not seen counts as none of its levels

    def nothing(self) -> ProjectedRows:
        """Return what is known of no rows."""
        return ProjectedRows(Drift(self.model), Problems(self.ignore_unseen))

    def batches(self, source: Part, rows: ProjectedRows) -> Iterator[pa.RecordBatch]:
        """Yield the columns to pass through and the new features of a table, in batches.

        What is known of the rows is added to `rows`.
        """
        for batch in encode_new_rows(source, self.schema, rows.problems, self.passed):
            # Gaps and infinite values are among the problems of the rows. There are hardly any, and
            # to replace them takes long.
            finite = np.isfinite(batch.X)
            X = batch.X if finite.all() else np.where(finite, batch.X, batch.X.dtype.type(0))
            # With one thread, the bits are the same in any process.
            with np.errstate(over="ignore", invalid="ignore"), single_threaded_blas():
                new = self.model.transform(X)
            rows.add(batch, new)
            names = [*batch.passed.schema.names, *self.model.get_feature_names_out()]
            yield pa.record_batch([*batch.passed.columns, *map(pa.array, new.T)], names)

    def project(self, source: Part) -> tuple[list[pa.RecordBatch], ProjectedRows]:
        """Return the new features of a table, and what is known of its rows."""
        rows = self.nothing()
        return list(self.batches(source, rows)), rows

    def write(self, writer: PartWriter, part: tuple[str, Part]) -> ProjectedRows:
        """Write the new features of a part of a table, and return what is known of its rows."""
        name, source = part
        rows = self.nothing()
        writer.write(name, self.batches(source, rows))
        return rows
