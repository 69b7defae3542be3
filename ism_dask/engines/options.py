"""Which engine computes a fit, with its options; estimators take these, or a name alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ism_dask._validation import check_choice, check_open_interval
from ism_dask.engines.base import TOLERANCE, DeclinedError, Engine, Problem
from ism_dask.engines.closed_form import ClosedFormEngine
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.lowrank.landmark_engine import LandmarkEngine

_Result = TypeVar("_Result")


# From cheap to expensive: "auto" takes the first that does not refuse and is advised.
ENGINES: dict[str, type[Engine]] = {
    kind.name: kind for kind in (ClosedFormEngine, LandmarkEngine, ExactEngine)
}


@dataclass(frozen=True)
class EngineOptions:
    """The choice of an engine, with its options.

    Parameters
    ----------
    name : {"auto", "closed_form", "landmarks", "exact"}, default "auto"
        "auto" takes the cheapest engine that applies, and the next one if that engine declines.
    tol : float, default 1e-4
        For landmarks, the share of the trace of the kernel that may be left out; of a polynomial
        with few monomials nothing is. If W is then not stationary under the true kernel, the fit
        also tries a tenth and a hundredth of it. `report_.engine_error` bounds the effect on J;
        measured errors are far smaller.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> from ism_dask.engines import EngineOptions
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2, engine=EngineOptions("landmarks", tol=1e-3)).fit(X, y).report_.engine
    'landmarks'
    """

    name: str = "auto"
    tol: float = TOLERANCE

    def __post_init__(self) -> None:
        check_choice("`engine`", self.name, ["auto", *ENGINES])
        check_open_interval("`tol` of an engine", self.tol, 0, 1)

    def refusal(self, problem: Problem) -> str | None:
        """Return why the engine cannot solve `problem`, or None if it can."""
        # The exact engine, which "auto" may take, can solve every problem.
        return None if self.name == "auto" else ENGINES[self.name].refusal(problem)

    def engines(self, problem: Problem, q: int) -> list[Engine]:
        """Return the engines that may solve `problem` for q columns of W, the cheapest first.

        Raises
        ------
        ValueError
            If the engine was chosen by the user and cannot solve the problem.
        """
        reason = self.refusal(problem)
        if reason:
            raise ValueError(
                f"`engine`={self.name!r} cannot serve this problem: {reason}; try engine='auto'"
            )
        kinds = [kind for kind in ENGINES.values() if self.name in {kind.name, "auto"}]
        if self.name == "auto":
            kinds = [k for k in kinds if not k.refusal(problem) and k.advised(problem)]
        return [
            LandmarkEngine(problem, q, self.tol) if kind is LandmarkEngine else kind(problem, q)
            for kind in kinds
        ]


def as_engine(engine: str | EngineOptions) -> EngineOptions:
    """Return the options of the engine of a name in `ENGINES`, or "auto"; leave options as is."""
    return engine if isinstance(engine, EngineOptions) else EngineOptions(engine)


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
