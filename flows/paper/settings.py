"""Settings of `ism-dask tables`, and the names of what the paper compares.

Importing this must be cheap, because `--help` waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flows.errors import SettingsError
from flows.settings.base import FlowSettings, import_choices, keep_runs_setting
from flows.settings.fields import check_run_name, data_setting, run_setting, solver_setting

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
OTHER_SOLVERS = ("stiefel", "grassmann", "dimension-growth")
# Solvers whose seconds are compared with those of ISM.
TIMED_SOLVERS = ("stiefel", "grassmann")
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


def _choice_setting(about: str, names: Iterable[str], title: str) -> Any:
    return data_setting(
        ALL,
        about=f"{about}: some of {', '.join(names)}, with commas between.",
        decides="course",
        title=title,
    )


@dataclass(frozen=True, kw_only=True)
class TablesSettings(FlowSettings):
    """Settings of a run of the paper's Tables 4 and 5, Figures 1a and 1b, and further parts."""

    parts: str = _choice_setting("What to measure", PARTS, "Parts")
    data: str = _choice_setting("Data sets of the tables", DATA, "Data sets")
    methods: str = _choice_setting("Methods of the tables", METHODS, "Methods")
    cap: float = solver_setting(
        600.0,
        about="Seconds that a method may take for one fold. One that was over the cap keeps the "
        "best W it had, says so, and has no further folds.",
        title="Seconds a fold",
        gt=0,
    )
    budget: float = solver_setting(
        1800.0,
        about="Seconds that a method may take for all folds of a cell: when they are over no other "
        "fold is begun, and the cell says how many there were.",
        decides="course",
        title="Seconds a cell",
        gt=0,
    )
    folds: int = solver_setting(10, about="Number of folds.", ge=2)
    seed: int = solver_setting(0, about="Seed of every random choice.", ge=0, le=2**32 - 1)
    run: str = run_setting(
        "tables",
        about="Name of the saved run. What it has measured already is not measured again.",
        decides="nothing",
        check=check_run_name,
    )
    keep_runs: int | None = keep_runs_setting()
    force: bool = run_setting(False, about="Measure everything again.", decides="nothing")

    def __post_init__(self) -> None:
        super().__post_init__()
        for setting in CHOICES:
            self.chosen(setting)

    @property
    def title(self) -> str:
        """The title of the run: `tables` and the chosen parts, data sets and methods."""
        some = [value for value in (self.parts, self.data, self.methods) if value != ALL]
        return " ".join(["tables", *some])

    @property
    def subject(self) -> tuple[str, ...]:
        """The tags of the run."""
        return ("paper",)

    def chosen(self, setting: str) -> tuple[str, ...]:
        """Return the names chosen by a setting of `CHOICES`, in the order of all names.

        Raise a SettingsError if one of them is unknown.
        """
        text, names = getattr(self, setting), list(CHOICES[setting])
        chosen = names if text == ALL else [name.strip() for name in text.split(",")]
        bad = [name for name in chosen if name not in names]
        if bad:
            hint = import_choices().did_you_mean(bad[0], names)
            raise SettingsError(
                f"`{setting}` has {bad[0]!r}; {hint}expected {ALL}, or some of {', '.join(names)}"
            )
        return tuple(name for name in names if name in chosen)
