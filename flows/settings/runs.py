"""Settings of runs: of all that are saved, of all that fit W, and of each flow.

Importing this module is cheap, because `--help` has to wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from flows.errors import SettingsError
from flows.settings.base import CLUSTER_FILE, DataSettings, import_choices, scheduler_setting
from flows.settings.fields import (
    check_run_name,
    components_setting,
    course_setting,
    data_setting,
    kernel_setting,
    number_of,
    run_setting,
    saving_setting,
    solver_setting,
    split_names,
)

if TYPE_CHECKING:
    from ism_dask.kernels import Kernel

# Settings of a fit that name labels beside the one to explain.
SIDES = ("avoid", "given", "groups")
KERNEL_PARAMETERS = ("sigma", "degree", "offset", "neighbor")
# The criteria, and what a cross-validation by both of them is called.
PREDICTION, DEPENDENCE, BOTH = "prediction", "dependence", "both"
# The criterion that a setting belongs to, if it is one alone.
_CRITERIA = {
    **dict.fromkeys(("angle_tol", "engine", "engine_tol", "tol"), DEPENDENCE),
    "max_features": PREDICTION,
}
# `max_features` of W that may use all columns.
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class SavedRunSettings(DataSettings):
    """Settings of a flow that fits W to the rows of a data set and saves its result as a run."""

    apart_by: ClassVar[tuple[str, ...]] = ("dataset", "kernel")
    label: str | None = data_setting(
        None,
        about="The label to explain (face: identity or pose). Default: that of the data set.",
    )
    n_components: int | None = components_setting(
        about="How many new features, q. Default: up to six are tried; for dependence, or more "
        "than seven classes: one fewer than classes, or one for each label that is numbers."
    )
    run: str | None = saving_setting(
        None,
        about="Name of the saved run. Default: made of its data and settings, such as "
        "wine-gaussian-q2.",
        check=check_run_name,
    )
    force: bool = saving_setting(False, about="Replace a run of that name.")
    afresh: bool = saving_setting(
        False, about="Start from the beginning, even if a run of that name can be resumed."
    )
    scheduler: str | None = scheduler_setting()
    stall: float = course_setting(
        600.0,
        about="With --scheduler: a cluster counts as lost if no task ends for so many seconds.",
        ge=1,
    )
    kernel: str = kernel_setting(
        "gaussian",
        about="Kernel, such as gaussian, polynomial or linear.",
        names=lambda: sorted(import_choices().KERNELS),
    )
    sigma: float | str | None = kernel_setting(
        None,
        about="Width of a gaussian: a number, root or median. Default: root, the median distance "
        "between rows, scaled to the new features; for clusters median, without the scaling.",
    )
    degree: int | None = kernel_setting(None, about="Degree of a polynomial.")
    offset: float | None = kernel_setting(
        None, about="Offset of a polynomial, multiquadric or distance."
    )
    neighbor: int | None = kernel_setting(
        None, about="Which neighbour's distance is the width of a relative_gaussian."
    )
    engine: str = solver_setting(
        "auto",
        about="For dependence and clusters: closed_form, landmarks or exact; auto takes the "
        "cheapest.",
        names=lambda: ["auto", *import_choices().ENGINES],
    )
    engine_tol: float = solver_setting(
        1e-4, about="Share of the kernel's trace that landmarks may leave out.", gt=0, lt=1
    )
    tol: float | None = solver_setting(
        None,
        about="Stop when the eigenvalues change by less; 0.01 is the published rule. Default: "
        "iterate until W is stationary.",
        gt=0,
    )
    angle_tol: float | None = solver_setting(
        None, about="Stop only if W turns by less, too: the sine of the angle.", gt=0
    )
    max_iter: int | None = solver_setting(
        None, about="Stop after so many iterations. Default: 300 for ism, 100 for prediction.", ge=1
    )
    max_seconds: float | None = solver_setting(
        None, about="Stop a fit after so many seconds and use the best W so far.", gt=0
    )
    rotation: str | None = solver_setting(
        None,
        about="varimax: rotate W within its space so that new features have few large weights.",
        names=lambda: [*import_choices().ROTATIONS],
    )
    seed: int = solver_setting(0, about="Seed of every random choice.", ge=0, le=2**32 - 1)
    checkpoint: float = course_setting(
        1.0,
        about="Seconds between two checkpoints of a fit; 0 saves one after each iteration.",
        ge=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sigma", number_of(self.sigma))
        self.build_kernel()

    @property
    def place(self) -> str:
        """Where the run computes, in a word or two: a cluster has the name of its file."""
        return (self.scheduler or "this machine").rpartition("/")[2].removesuffix(CLUSTER_FILE)

    @property
    def size(self) -> str:
        """The number of new features or clusters; empty if the run chooses it."""
        return "" if self.n_components is None else f"q={self.n_components}"

    @property
    def sides(self) -> tuple[str, ...]:
        """The labels beside the one to explain; a table has them apart from its features."""
        names = (getattr(self, side, None) for side in SIDES)
        return tuple(dict.fromkeys(each for name in names for each in split_names(name)))

    @property
    def method(self) -> str:
        """How W is computed, in a few words: by its criterion, or for dependence its engine."""
        criterion = getattr(self, "criterion", DEPENDENCE)
        by = {PREDICTION: "by prediction", BOTH: "by ISM and prediction"}
        return by.get(criterion, f"engine {self.engine}")

    @property
    def title(self) -> str:
        """What the flow works on: what tells runs apart, and the size."""
        return f"{super().title} {self.size}".strip()

    @property
    def flow_run_name(self) -> str:
        """Name of the flow run in Prefect: the run, title, method, and where it computes."""
        name = f"{self.title}, {self.method}, on {self.place}"
        return name if self.run is None else f"{self.run}: {name}"

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the flow run in Prefect: run, what tells runs apart, size, method and place."""
        return tuple(filter(None, (self.run, *self.subject, self.size, self.method, self.place)))

    @property
    def solver_options(self) -> dict[str, Any]:
        """The options that the settings give the solver; it has its defaults for all others."""
        names = ("max_iter", "max_seconds", "tol", "angle_tol")
        return {name: value for name in names if (value := getattr(self, name))}

    def build_kernel(self) -> Kernel:
        """Return the kernel with the parameters that are set; raise SettingsError for others."""
        parameters = {name: getattr(self, name) for name in KERNEL_PARAMETERS}
        kernel: Kernel = import_choices().build_kernel(self.kernel, parameters)
        return kernel


@dataclass(frozen=True, kw_only=True)
class SearchSettings(SavedRunSettings):
    """Settings of the search for the best W, for fits with labels y; see docs/solvers.md."""

    criterion: str = solver_setting(
        PREDICTION,
        about="What W maximises. prediction: the share of the label that a kernel ridge regression "
        "explains; dependence: HSIC, as published.",
        names=lambda: [PREDICTION, DEPENDENCE],
    )
    target: str = data_setting(
        "auto",
        about="How the label is explained: as classes, as numbers, or as numbers under a linear, "
        "gaussian or multiscale kernel. auto: classes for texts and codes, else numbers.",
        names=lambda: ["auto", "numbers", *import_choices().TARGETS],
    )
    avoid: str | None = data_setting(
        None,
        about="The label that new features are not to depend on, such as age; or several, "
        "separated by commas.",
    )
    avoid_weight: float = solver_setting(
        10.0, about="Weight of the label to avoid, relative to the one to explain.", ge=0
    )
    given: str | None = data_setting(
        None,
        about="The label taken as given, such as age: new features explain what it does not; or "
        "several, separated by commas.",
    )
    groups: str | None = data_setting(
        None,
        about="The label of groups, such as patient: rows of one group stay in one fold, in a "
        "cross-validation and in the choices of a fit by prediction.",
    )
    balanced: bool = data_setting(
        False, about="Give all classes the same weight, however many rows they have."
    )
    max_features: int | str | None = solver_setting(
        None,
        about="How many columns W may use; or significant: those whose weights noise does not "
        "explain; or all. Default: significant if unseen rows are then predicted better.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "max_features", number := number_of(self.max_features))
        if len(split_names(self.groups)) > 1:
            raise SettingsError(f"`groups` is {self.groups!r}; expected one label", "groups")
        words = (None, ALL, "auto", "significant")
        if number not in words and not (isinstance(number, int) and number > 0):
            raise SettingsError(
                f"`max_features` is {number!r}; expected a number of columns from 1 up, "
                '"significant" or "all"',
                "max_features",
            )
        for name in sorted(self.differences.keys() & _CRITERIA):
            if self.criterion != (criterion := _CRITERIA[name]):
                flag = f"--{name.replace('_', '-')}"
                but = "which" if name == "engine" else f"but {flag}"
                raise SettingsError(
                    f"`{name}` is {getattr(self, name)!r}, {but} belongs to --criterion "
                    f"{criterion}; give that, or leave {flag} out",
                    name,
                )
        if self.criterion != DEPENDENCE and not self.build_kernel().is_positive_definite:
            raise SettingsError(
                f"`kernel` is {self.kernel!r}, which is not positive definite, so that no "
                "regression can use it; expected gaussian, polynomial or linear, or "
                f"--criterion {DEPENDENCE}",
                "kernel",
            )


@dataclass(frozen=True, kw_only=True)
class CrossvalSettings(SearchSettings):
    """Settings of a stratified cross-validation of W by an RBF support vector machine on X W."""

    criterion: str = solver_setting(
        PREDICTION,
        about="What W maximises. prediction: the share of the label that a kernel ridge regression "
        "explains; dependence: HSIC, as published; both: the two on the same folds.",
        names=lambda: [PREDICTION, DEPENDENCE, BOTH],
    )
    folds: int = run_setting(10, about="Number of folds.", ge=2)
    first: int | None = course_setting(
        None, about="Run only this many folds, from the first.", ge=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first is not None and self.first > self.folds:
            raise SettingsError(
                f"`first` is {self.first}; expected at most `folds`, which is {self.folds}",
                "first",
                "folds",
            )

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria that W is fitted by on each fold."""
        return (DEPENDENCE, PREDICTION) if self.criterion == BOTH else (self.criterion,)


@dataclass(frozen=True, kw_only=True)
class FitSettings(SearchSettings):
    """Settings of a fit of W to all rows."""

    label: str | None = data_setting(
        None,
        about="The label to explain (face: identity or pose); or several that are numbers, "
        "separated by commas. Default: that of the data set.",
    )
    start_from: str | None = solver_setting(
        None,
        about="Start at the W of this run, with its width and ridge, or its kernel parameters; "
        "criterion, kernel and columns must be the same.",
        check=check_run_name,
    )
