"""Project a table, or a piece of one, onto the new features of a model, in any process.

Workers of a cluster import this module. Dask puts a folder on their path that may have a `storage`
of its own, so names come from the modules of our `storage`, not from the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ism_dask.rows.raw import ColumnMoments
from ism_dask.threads import single_threaded_blas
from storage.dataset import ZarrRows
from storage.models import Model
from storage.tables.encoding import EncodedRows, Problems
from storage.tables.new_rows import encode_new_rows
from storage.tables.schema import TableSchema
from storage.tables.sources import Part, matrix_table

Array = NDArray[Any]
# Rows of float32 and the same rows of float64 differ by less than this share of the range.
_ROUNDING = 1e-5


@dataclass(eq=False)
class ProjectedRows:
    """What is known of rows that were projected."""

    names: Sequence[str]  # of the new features
    learned: ColumnMoments | None  # of those of the rows that the model was fitted to, if saved
    problems: Problems  # why rows do not fit the schema
    read: int = 0
    rows: int = 0  # those that were projected; the others lack a value
    outside: Any = 0  # of each new feature, the rows out of the learned range
    moments: list[ColumnMoments] = field(default_factory=list)  # of the new features, by batch

    def add(self, batch: EncodedRows, new: Array) -> None:
        """Add the new features (m, q) of a batch of rows."""
        finite = np.isfinite(new).all(axis=1)
        if not finite.all():
            self.problems.infinite["the projection"] += int(np.count_nonzero(~finite))
        self.read += len(batch.left_out)
        self.rows += len(new)
        if self.learned is None or not finite.any():
            return
        slack = _ROUNDING * (self.learned.high - self.learned.low)
        outside = (new < self.learned.low - slack) | (new > self.learned.high + slack)
        self.outside = self.outside + np.count_nonzero(outside[finite], axis=0)
        # The squares of numbers that are barely floats are not.
        with np.errstate(over="ignore", invalid="ignore"):
            self.moments.append(ColumnMoments.from_rows(new[finite]))

    def merge(self, other: ProjectedRows) -> None:
        """Add later rows."""
        self.problems.merge(other.problems)
        self.read += other.read
        self.rows += other.rows
        self.outside = self.outside + other.outside
        self.moments += other.moments

    def drift(self) -> list[dict[str, Any]]:
        """Return for each new feature the share of rows out of range, and the shift of the mean.

        `mean_shift` is in units of the deviation among the rows that the model was fitted to.
        Nothing is returned for a model that was saved without statistics.
        """
        learned = self.learned
        if learned is None or not self.moments:
            return []
        with np.errstate(over="ignore", invalid="ignore"):
            moments = reduce(add, self.moments)
        shares = self.outside / moments.n_rows
        deviation = np.maximum(learned.deviation, np.finfo(np.float64).tiny)
        shifts = (moments.mean - learned.mean) / deviation
        return [
            {"feature": number, "name": name, "share_outside": share, "mean_shift": shift}
            for number, (name, share, shift) in enumerate(
                zip(self.names, shares.tolist(), shifts.tolist(), strict=True)
            )
        ]


def read_chunk(
    rows: ZarrRows, names: Sequence[str] | None, start: int, columns: list[str]
) -> list[pa.RecordBatch]:
    """Return the rows of a data set from number `start` to the end of its chunk, as batches."""
    values = rows.read(start, min(start + rows.chunk_rows, len(rows)))
    return list(matrix_table(values, names).select(columns).to_batches())


@dataclass(frozen=True, eq=False)
class Projector:
    """Projects tables by a model; it can be pickled for other processes."""

    model: Model  # with no more than is needed
    schema: TableSchema  # of the table that the model was fitted to
    passed: tuple[str, ...]  # columns that are passed through
    ignore_unseen: bool  # whether a level that the model has not seen counts as none of its levels

    def nothing(self) -> ProjectedRows:
        """Return what is known of no rows."""
        model = self.model
        names = model.get_feature_names_out()
        return ProjectedRows(names, model.statistics, Problems(self.ignore_unseen))

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
