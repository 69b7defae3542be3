"""Engines as objects with their options, which estimators take beside the names of engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, TypeVar

from ism_dask._validation import check_choice, check_open_interval
from ism_dask.engines.base import TOLERANCE, DeclinedError, Engine, Problem
from ism_dask.engines.closed_form import ClosedFormEngine
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.lowrank.landmark_engine import LandmarkEngine

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class EngineOptions:
    """The choice of one engine, with its options; the fields are those of the class `kind`."""

    kind: ClassVar[type[Engine]]

    def refusal(self, problem: Problem, q: int) -> str | None:
        """Return why the engine cannot solve `problem` with q columns of W, or None if it can."""
        return self.kind.refusal(problem, q)

    def engines(self, problem: Problem, q: int) -> list[Engine]:
        """Return the engines that may solve `problem` for q columns of W, the cheapest first.

        Raises
        ------
        ValueError
            If the engine was chosen by the user and cannot solve the problem.
        """
        reason = self.refusal(problem, q)
        if reason:
            raise ValueError(
                f"`engine`={self.kind.name!r} cannot serve this problem: {reason}; try "
                "engine='auto'"
            )
        return [self.kind(problem, q, **asdict(self))]


@dataclass(frozen=True)
class ClosedForm(EngineOptions):
    """The closed form for kernels with a constant slope: linear and squared. It has no options."""

    kind = ClosedFormEngine


@dataclass(frozen=True)
class Landmarks(EngineOptions):
    """A low-rank factor by landmarks, for smooth kernels such as gaussians, and for polynomials.

    Parameters
    ----------
    tol : float, default 1e-4
        The share of the trace of the kernel that may be left out; of a polynomial with few
        monomials nothing is. If W is then not stationary under the true kernel, the fit also tries
        a tenth and a hundredth of it. `engine_error_` bounds the effect on J; measured errors are
        far smaller.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> from ism_dask.engines import Landmarks
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2, engine=Landmarks(tol=1e-3)).fit(X, y).engine_
    'landmarks'
    """

    kind = LandmarkEngine
    tol: float = TOLERANCE

    def __post_init__(self) -> None:
        check_open_interval("`tol` of an engine", self.tol, 0, 1)


@dataclass(frozen=True)
class Exact(EngineOptions):
    """The sum over all pairs of rows, for every kernel. It has no options."""

    kind = ExactEngine


# From cheap to expensive: `Auto` takes the first that does not refuse and is advised.
ENGINES: dict[str, type[EngineOptions]] = {
    options.kind.name: options for options in (ClosedForm, Landmarks, Exact)
}


@dataclass(frozen=True)
class Auto(Landmarks):
    """The cheapest engine that applies, and the next one if that engine declines.

    Parameters
    ----------
    tol : float, default 1e-4
        The `tol` of `Landmarks`, if that is chosen.
    """

    def refusal(self, problem: Problem, q: int) -> str | None:
        """Return None: the exact engine can solve every problem."""
        return None

    def engines(self, problem: Problem, q: int) -> list[Engine]:
        """Return the engines that do not refuse the problem and are advised for it."""
        kinds = [options.kind for options in ENGINES.values()]
        return [
            kind(problem, q, **(asdict(self) if kind is LandmarkEngine else {}))
            for kind in kinds
            if kind.refusal(problem, q) is None and kind.advised(problem, q)
        ]


def as_engine(engine: str | EngineOptions) -> EngineOptions:
    """Return the engine with a name in `ENGINES`, "auto", or an object with options as it is."""
    if isinstance(engine, EngineOptions):
        return engine
    name = check_choice("`engine`", engine, ["auto", *ENGINES])
    return Auto() if name == "auto" else ENGINES[name]()


def first_that_serves(engines: Sequence[Engine], work: Callable[[Engine], _Result]) -> _Result:
    """Return `work(engine)` for the first engine that does not decline the problem.

    The work starts anew with each engine, because values of J from different engines are not
    comparable. Too little memory is an error, and no reason for another engine: else the result
    would depend on what else the machine does.
    """
    note = ""
    for engine in engines:
        if note and note not in engine.note:
            engine.note = f"{engine.note}; {note}".removeprefix("; ")
        try:
            return work(engine)
        except DeclinedError as reason:
            if engine is engines[-1]:
                raise
            note = "; ".join([note, f"{engine.name} declined: {reason}"]).removeprefix("; ")
        except MemoryError as error:
            others = [each for each in engines if each.name != engine.name]
            if not others:
                raise
            raise MemoryError(f"{error}; or take engine={others[-1].name!r}") from error
    raise ValueError("there is no engine to attempt it with")
