"""What a regression on X W predicts: y itself, or the law of y, its leading functions."""

from __future__ import annotations

from dataclasses import dataclass

from ism_dask._types import Array
from ism_dask.selection.regularisation import Choice
from ism_dask.selection.sample import Sample

# The names of the two targets of numbers.
MEAN, LAW = "mean", "law"


@dataclass(frozen=True, eq=False)
class Target:
    """What a regression on X W is to predict.

    Attributes
    ----------
    Y : (n, r) array
        Columns of mean 0; the rows of those to predict have a mean square of 1.
    keys : (n,) array
        Classes or numbers; rows of similar y have similar ones.
    signs : (r,) array or None
        The weights of the columns in J, negative for what X W is not to predict.
    """

    Y: Array
    keys: Array
    signs: Array | None = None

    def part(self, rows: Array) -> Target:
        """Return the target of some rows (k,)."""
        return Target(self.Y[rows], self.keys[rows], self.signs)


def law_is_better(law: Sample, choices: dict[str, Choice]) -> bool:
    """Return whether W of the law predicts the functions of y better than W of the mean does.

    W of the law is fitted to them, so its gain has to exceed what its entries gain from noise.
    """
    mean_W = choices[MEAN].W
    losses = [
        float(law.blocks.leave_one_out(law.at(setting), W).mean())
        for W, setting in (
            (mean_W, law.best_setting(mean_W)),
            (choices[LAW].W, choices[LAW].setting),
        )
    ]
    d, q = mean_W.shape
    return losses[0] - losses[1] > 2 * d * q / law.rows.n_rows
