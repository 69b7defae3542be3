"""Names of what the paper compares, and the settings of a run that measures it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SUPERVISED, UNSUPERVISED = "supervised", "unsupervised"
PARADIGMS = (SUPERVISED, UNSUPERVISED)


@dataclass(frozen=True)
class Data:
    """A data set of the tables, which use the 10,000 test images of MNIST."""

    rows: int
    classes: int  # also the number of features q and of clusters k


@dataclass(frozen=True)
class Method:
    """A method that learns new features."""

    title: str
    published: str = ""  # its name in `published.csv`; empty if the paper does not have it
    solver: bool = True  # that maximises J; the others are reference points, without a kernel
    # Those in which it has cells. A method that needs labels has no unsupervised ones, nor has
    # another stopping rule of ISM, because clusterers have a single one.
    paradigms: tuple[str, ...] = PARADIGMS


# Parts that a run can measure, with a description of each.
PARTS = {
    "table-4": "ISM and the other solvers under the gaussian and the polynomial kernel",
    "table-5": "ISM under other kernels",
    "references": "no reduction, PCA, LDA, NCA, kernel PCA, supervised PCA",
    "features": "accuracy against the number of new features, on MNIST",
    "figure-1a": "alternative clusters of the flower and of the faces",
    "figure-1b": "seconds against the number of rows",
}
DATA = {
    "wine": Data(178, 3),
    "cancer": Data(683, 2),
    "face": Data(624, 20),
    "mnist": Data(10_000, 10),
}
# Kernels of Table 4, in which all solvers run, and of Table 5, in which only ISM does.
TABLE_4_KERNELS = ("gaussian", "polynomial")
ALIGNED = "gaussian+polynomial"
TABLE_5_KERNELS = ("linear", "squared", "multiquadric", ALIGNED)
# The published stopping rule: the eigenvalues change by less than delta.
DELTA = 0.01
ISM, ISM_PUBLISHED = "ism", "ism-0.01"
# ISM with the published graph of the rows of X W, where the other methods have that of the library.
ISM_GRAPH = "ism-graph"
RIVALS = ("stiefel", "grassmann", "dimension-growth")
# Rivals whose seconds are compared with those of ISM.
TIMED_RIVALS = ("stiefel", "grassmann")
METHODS = {
    ISM: Method("ISM", "ism"),
    ISM_PUBLISHED: Method("ISM, delta 0.01", "ism", paradigms=(SUPERVISED,)),
    ISM_GRAPH: Method("ISM, published graph", "ism", paradigms=(UNSUPERVISED,)),
    "stiefel": Method("Stiefel (SM)", "sm"),
    "grassmann": Method("Grassmann (GM)", "gm"),
    "dimension-growth": Method("Dimension growth (DG)", "dg"),
    "none": Method("all old features", solver=False),
    "pca": Method("PCA", solver=False),
    "kernel-pca": Method("kernel PCA", solver=False),
    "lda": Method("LDA", solver=False, paradigms=(SUPERVISED,)),
    "nca": Method("NCA", solver=False, paradigms=(SUPERVISED,)),
    "supervised-pca": Method("supervised PCA", solver=False, paradigms=(SUPERVISED,)),
}
# Settings that choose some names, or `ALL`.
CHOICES: Mapping[str, Mapping[str, Any]] = {"parts": PARTS, "data": DATA, "methods": METHODS}
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """What to measure, and within which limits.

    Parameters
    ----------
    parts, data, methods : str
        Some names of `CHOICES` with commas between, or "all".
    cap : float
        Seconds that a method may take for one fold. One that was over the cap has the best W so
        far, says so, and has no further folds.
    budget : float
        Seconds that a method may take for all folds of a cell: after them no other fold begins.
    folds, seed : int
    """

    parts: str = ALL
    data: str = ALL
    methods: str = ALL
    cap: float = 600.0
    budget: float = 1800.0
    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for setting in CHOICES:
            self.chosen(setting)

    def chosen(self, setting: str) -> tuple[str, ...]:
        """Return the names chosen by a setting of `CHOICES`, in the order of all names."""
        text, names = getattr(self, setting), list(CHOICES[setting])
        chosen = names if text == ALL else [name.strip() for name in text.split(",")]
        bad = [name for name in chosen if name not in names]
        if bad:
            raise ValueError(
                f"`{setting}` has {bad[0]!r}; expected {ALL}, or some of {', '.join(names)}"
            )
        return tuple(name for name in names if name in chosen)
