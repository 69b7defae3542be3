"""Project a table, or a piece of one, onto the new features of a model, in any process.

Workers of a cluster import this module. Dask puts a folder on their path that may have a `storage`
of its own, so names come from the modules of our `storage`, not from the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flows.errors import FlowError
from flows.runs.drift import Drift
from flows.runs.matrix_files import Array, values_too_large
from ism_dask.blas_threads import single_threaded_blas
from storage.models import SavedTransformer
from storage.tables.encoding import EncodedRows, Problems
from storage.tables.new_rows import encode_new_rows
from storage.tables.output_files import PartWriter
from storage.tables.schema import TableSchema
from storage.tables.sources import Part


@dataclass(eq=False)
class ProjectedRows:
    """What is known of rows that were projected.

    Attributes
    ----------
    drift : Drift
    problems : Problems
        Why rows do not fit the schema.
    read, rows : int
        Numbers of rows that were read, and that were projected; the others lack a value.
    too_large : int
        Number of rows whose projection overflows.
    first_too_large : int
        The number of the first one among those that were read, if there is one.
    """

    drift: Drift
    problems: Problems
    read: int = 0
    rows: int = 0
    too_large: int = 0
    first_too_large: int = 0

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
            raise values_too_large(self.too_large, self.first_too_large, source)

    def _count_too_large(self, rows: int, first: int) -> None:
        """Count rows too large to project; `first` is counted from the last row that was added."""
        if not self.too_large:
            self.first_too_large = self.read + first
        self.too_large += rows


@dataclass(frozen=True, eq=False)
class Projector:
    """Projects tables by a model; it can be pickled for other processes.

    Attributes
    ----------
    model : SavedTransformer
    schema : TableSchema
        Of the table that the model was fitted to.
    passed : tuple of str
        The columns of the table that are passed through.
    ignore_unseen : bool
        Whether a level that the model has not seen counts as none of its levels.
    """

    model: SavedTransformer
    schema: TableSchema
    passed: tuple[str, ...]
    ignore_unseen: bool

    @classmethod
    def of(
        cls,
        model: SavedTransformer,
        schema: TableSchema,
        passed: tuple[str, ...],
        *,
        ignore_unseen: bool,
    ) -> Projector:
        """Return the projector of a saved model, with no more of it than is needed."""
        names = model.get_feature_names_out()
        taken = [name for name in passed if name in names]
        if taken:
            raise FlowError(
                f"the table has a column {taken[0]!r}, as a new feature is called; rename it"
            )
        return cls(model.bare(), schema, passed, ignore_unseen)

    def nothing(self) -> ProjectedRows:
        """Return what is known of no rows."""
        return ProjectedRows(Drift(self.model), Problems(self.ignore_unseen))

    def batches(self, source: Part, rows: ProjectedRows) -> Iterator[pa.RecordBatch]:
        """Yield the new features of a table, in batches, with its columns to pass through.

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
            yield self._batch(new, batch.passed)

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

    def _batch(self, new: Array, passed: pa.RecordBatch) -> pa.RecordBatch:
        columns, names = [pa.array(column) for column in new.T], self.model.get_feature_names_out()
        return pa.record_batch([*passed.columns, *columns], [*passed.schema.names, *names])
