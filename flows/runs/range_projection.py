"""Project a range of the rows of a data set, in any process.

Workers of a cluster import this module: it takes names from the modules of `storage`, as
`projection` does, but it needs no pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.runs.matrix_files import Array
from ism_dask.blas_threads import single_threaded_blas
from storage.dataset import ZarrRows
from storage.models import SavedTransformer


@dataclass(frozen=True, eq=False)
class RangeProjector:
    """Projects ranges of the rows of a data set by a model; it can be pickled.

    Attributes
    ----------
    model : SavedTransformer
    rows : ZarrRows
    order : list of int, optional
        The columns in the order of the model, unless they are in order.
    """

    model: SavedTransformer
    rows: ZarrRows
    order: list[int] | None

    def __call__(self, between: tuple[int, int]) -> Array:
        """Return the new features (m, q) of the rows from a number to before another."""
        block = self.rows.read(*between)
        # With one thread, the bits are the same in any process.
        with single_threaded_blas():
            return self.model.transform(block if self.order is None else block[:, self.order])
