"""What a run is asked to do.

Each setting is told once, here: the command line makes an option of it, the form of the Prefect
UI a field, and a saved model keeps it. Importing this module is cheap, for `--help` waits for it.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flows.errors import SettingsError

if TYPE_CHECKING:
    from types import ModuleType

    from ism_dask.kernels import Kernel

_RUN = "run:"
# Of clusters that are told something of the rows, where it is not said.
MU, SCORES_SHARE = 1.0, 0.1
_KERNEL_PARAMETERS = ("sigma", "degree", "offset", "neighbor")


def setting(
    default: Any = dataclasses.MISSING,
    *,
    about: str,
    flags: tuple[str, ...] = (),
    cli_type: Any = None,
    names: Callable[[], list[str]] | None = None,
    **bounds: float,
) -> Any:
    """Return a dataclass field that the command line and the Prefect form can show.

    Parameters
    ----------
    default : optional
        Without one, it is an argument of the command.
    about : str
        One line for people.
    flags : tuple of str
        Names of the option, where they are not that of the field.
    cli_type : type, optional
        What the command line reads, where it is not the type of the field.
    names : callable, optional
        Returns the names to choose from in the form.
    **bounds : float
        `ge` or `gt`: the least value, or what it must be above; `le` or `lt`: the largest, or
        what it must be below.
    """
    metadata: dict[str, Any] = {"description": about, "flags": flags, "cli_type": cli_type}
    if names is not None:
        metadata["json_schema_extra"] = lambda schema: schema.update(enum=names())
    return field(default=default, metadata={**metadata, **bounds})


def _kernel_names() -> list[str]:
    return sorted(_known().KERNELS)


def _engine_names() -> list[str]:
    return ["auto", *_known().ENGINES]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Which data, and how W is to be fitted."""

    dataset: str = setting(about="Name of a data set; `ism-dask datasets` lists them.")
    split: str | None = setting(None, about="Part of the data set. Default: its first.")
    label: str | None = setting(
        None, about="Which label X W is to depend on (face: identity or pose). Default: its own."
    )
    kernel: str = setting(
        "gaussian", about="Kernel, such as gaussian, polynomial or linear.", names=_kernel_names
    )
    sigma: float | str | None = setting(
        None, about='Width of a gaussian: a number or "median".', cli_type=str | None
    )
    degree: int | None = setting(None, about="Degree of a polynomial.")
    offset: float | None = setting(None, about="Offset of a polynomial or multiquadric.")
    neighbor: int | None = setting(
        None, about="Which neighbour's distance is the width of a relative_gaussian."
    )
    n_components: int | None = setting(
        None,
        about="How many new features, q. Default: the number of classes.",
        flags=("--components", "-q"),
        ge=1,
    )
    engine: str = setting(
        "auto",
        about="closed, features, landmarks or exact; auto takes the cheapest.",
        names=_engine_names,
    )
    engine_tol: float = setting(
        1e-4, about="Share of the kernel's trace that landmarks may leave out.", gt=0, lt=1
    )
    tol: float = setting(0.01, about="Stop when the eigenvalues change by less.", gt=0)
    angle_tol: float | None = setting(
        None, about="Stop only when W turns by less, too: the sine of the angle.", gt=0
    )
    max_iter: int = setting(100, about="Stop after so many iterations.", ge=1)
    seed: int = setting(0, about="Of everything that is drawn at random.", ge=0, le=2**32 - 1)
    scheduler: str | None = setting(
        None,
        about="Where to compute: tcp://host:port of a Dask scheduler, up for that of `ism-dask "
        "up`, or a cluster file such as slurm.toml. Default: here.",
        flags=("--scheduler", "--cluster"),
    )

    def __post_init__(self) -> None:
        for known in dataclasses.fields(self):
            _check_bounds(known, getattr(self, known.name))
        if self.scheduler is not None:
            _known().place_of(self.scheduler)
        _choose("engine", self.engine, _engine_names())
        self.build_kernel()
        _known().check_data(self)

    @property
    def title(self) -> str:
        """What the run is called."""
        q = "" if self.n_components is None else f" q={self.n_components}"
        return f"{self.dataset} {self.kernel}{q}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return dataclasses.asdict(self)

    def build_kernel(self) -> Kernel:
        """Return the kernel with the parameters that were given."""
        kind = _known().KERNELS[_choose("kernel", self.kernel, _kernel_names())]
        given = {name: getattr(self, name) for name in _KERNEL_PARAMETERS}
        given = {name: value for name, value in given.items() if value is not None}
        allowed = [name for name in _KERNEL_PARAMETERS if name in kind.__dataclass_fields__]
        odd = [name for name in given if name not in allowed]
        if odd:
            raise SettingsError(
                f"`{odd[0]}` is no parameter of the {self.kernel} kernel, which takes "
                f"{' and '.join(allowed) or 'none'}; leave it out or choose another kernel"
            )
        if "sigma" in given:
            given["sigma"] = _width(given["sigma"])
        try:
            kernel: Kernel = kind(**given)
        except ValueError as error:
            raise SettingsError(str(error)) from error
        return kernel


@dataclass(frozen=True, kw_only=True)
class CrossvalSettings(Settings):
    """A stratified cross-validation of W with an RBF support vector machine on X W."""

    folds: int = setting(10, about="How many parts the rows are dealt into.", ge=2)
    first: int | None = setting(None, about="Run only the first so many of the folds.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first is not None and self.first > self.folds:
            raise SettingsError(
                f"`first` is {self.first}; expected at most `folds`, which is {self.folds}"
            )

    @property
    def numbers(self) -> range:
        """The folds to run, counted from 1."""
        return range(1, (self.first or self.folds) + 1)


@dataclass(frozen=True, kw_only=True)
class FitSettings(Settings):
    """A fit of W on all rows, kept as a run."""

    run: str | None = setting(
        None, about="Name to save the model under. Default: such as wine-gaussian-q3."
    )
    force: bool = setting(False, about="Replace a run of that name.", flags=("--force",))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run is not None:
            _known().check_run_name(self.run)


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(FitSettings):
    """Clusters of all rows and the W in which they show, kept as a run."""

    # What these three are for is another thing here.
    label: str | None = setting(
        None,
        about="Which label has the classes: to count, and for semisupervised to tell some of. "
        "Default: its own.",
    )
    n_components: int | None = setting(
        None,
        about="How many new features, q. Default: the number of clusters.",
        flags=("--components", "-q"),
        ge=1,
    )
    run: str | None = setting(
        None, about="Name to save the run under. Default: such as wine-unsupervised-gaussian-k3."
    )
    paradigm: str = setting(
        "unsupervised",
        about="unsupervised, semisupervised (classes of some rows) or alternative (to --avoid).",
        names=lambda: list(_known().PARADIGMS),
    )
    n_clusters: int | None = setting(
        None,
        about="How many clusters, k. Default: the number of classes of the label.",
        flags=("--clusters", "-k"),
        ge=1,
    )
    mu: float | None = setting(
        None,
        about="semisupervised, alternative: what scores, or labels to avoid, count beside the "
        f"clusters. Default: {MU}.",
        gt=0,
    )
    scores_share: float | None = setting(
        None,
        about=f"semisupervised: the share of rows whose class is told. Default: {SCORES_SHARE}.",
        gt=0,
        le=1,
    )
    avoid: str | None = setting(
        None,
        about="alternative: a label, or run:NAME for the clusters of a run. Default: the data "
        "set's own label.",
    )
    outer_tol: float = setting(
        0.01, about="Stop when the eigenvalues of the embedding change by less.", gt=0
    )
    max_outer: int = setting(20, about="Stop after so many rounds.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _choose("paradigm", self.paradigm, list(_known().PARADIGMS))
        _known().check_guidance(self)
        if self.run_to_avoid is not None:
            _known().check_run_name(self.run_to_avoid)

    @property
    def title(self) -> str:
        """What the run is called."""
        k = "" if self.n_clusters is None else f" k={self.n_clusters}"
        return f"{self.dataset} {self.paradigm} {self.kernel}{k}"

    @property
    def run_to_avoid(self) -> str | None:
        """The run whose clusters are to be avoided, where it is not a label."""
        avoid = self.avoid or ""
        return avoid.removeprefix(_RUN) if avoid.startswith(_RUN) else None


def _known() -> ModuleType:
    # The registries stand on the whole scientific stack: a second that `--help` need not take.
    from flows import known  # noqa: PLC0415

    return known


def _choose(name: str, value: str, names: list[str]) -> str:
    if value not in names:
        raise SettingsError(f"`{name}` is {value!r}; expected one of {', '.join(names)}")
    return value


# Each with what a value has to be.
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "{} or more"),
    "gt": (operator.gt, "a number above {}"),
    "le": (operator.le, "{} or less"),
    "lt": (operator.lt, "a number below {}"),
}


def _check_bounds(known: dataclasses.Field[Any], value: Any) -> None:
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"`{known.name}` is {value}; expected a finite number")
    for name, (holds, words) in _BOUNDS.items():
        bound = known.metadata.get(name)
        if bound is not None and not holds(value, bound):
            raise SettingsError(f"`{known.name}` is {value}; expected {words.format(bound)}")


def _width(sigma: float | str) -> float | str:
    if sigma == "median":
        return sigma
    try:
        return float(sigma)
    except ValueError:
        raise SettingsError(
            f'`sigma` is {sigma!r}; expected a positive number or "median"'
        ) from None
