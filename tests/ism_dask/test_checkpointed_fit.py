"""Fits that are cut off after any of their steps, and go on: the same bits, and little lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from models import hsic_model
from sklearn.datasets import load_breast_cancer, load_wine

from ism_dask import AlternativeIKDR, SemiSupervisedIKDR, SupervisedIKDR, UnsupervisedIKDR
from ism_dask.kernels import Gaussian, Polynomial
from ism_dask.records.checkpoint import Checkpoint, CheckpointedFit, saving_checkpoints
from ism_dask.records.iteration import Solution
from ism_dask.solvers import ISM
from ism_dask.status import Status

WINE, CLASSES = load_wine(return_X_y=True)
TUMOURS, KINDS = (each[:300] for each in load_breast_cancer(return_X_y=True))


class CutOffError(Exception):
    """The process is gone."""


def in_pieces(make: Callable[[], Any], X: Any, y: Any, every: int) -> tuple[Any, list[Checkpoint]]:
    """Fit, cut off after each so many steps; return the model and its checkpoints."""
    checkpoints: list[Checkpoint] = []
    while True:
        steps: list[Checkpoint] = []

        def keep(checkpoint: Checkpoint, steps: list[Checkpoint] = steps) -> None:
            steps.append(checkpoint)
            if len(steps) >= every:
                raise CutOffError

        known = checkpoints[-1] if checkpoints else None
        model = make()
        try:
            with saving_checkpoints(CheckpointedFit(known, keep)):
                model.fit(X, y)
        except CutOffError:
            checkpoints += steps
        else:
            return model, checkpoints + steps


def supervised(**given: Any) -> Callable[[], SupervisedIKDR]:
    given = {"kernel": Gaussian("median"), **given}
    return lambda: hsic_model(2, random_state=0, **given)


FITS = {
    "exact": (supervised(solver=ISM(tol=1e-9)), WINE, CLASSES),
    "landmarks": (supervised(engine="landmarks", solver=ISM(tol=1e-6)), WINE, CLASSES),
    "monomials": (supervised(kernel="polynomial", solver=ISM(tol=1e-9)), WINE, CLASSES),
    "closed": (supervised(kernel="linear"), WINE, CLASSES),
    "starts": (supervised(kernel=Polynomial(degree=3), solver=ISM(restarts=2)), WINE, CLASSES),
    "continuation": (
        supervised(kernel=Gaussian(sigma=2.0), solver=ISM(continuation=True)),
        WINE,
        CLASSES,
    ),
    "refine": (supervised(solver=ISM(refine=True)), WINE, CLASSES),
    "few features": (supervised(max_features=4, rotation="varimax"), WINE[::2], CLASSES[::2]),
    # Swings at q = 2, and goes on along the slope.
    "climb": (supervised(), TUMOURS, KINDS),
    "rival": (supervised(solver="stiefel"), WINE, CLASSES),
}


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("name", FITS)
def test_a_fit_in_pieces_has_the_bits_of_a_whole_one(name: str, every: int) -> None:
    make, X, y = FITS[name]
    whole = make().fit(X, y)
    pieces, checkpoints = in_pieces(make, X, y, every)
    assert np.array_equal(pieces.components_, whole.components_)
    assert np.array_equal(pieces.eigenvalues_, whole.eigenvalues_)
    assert (pieces.objective_, pieces.residual_, pieces.status_, pieces.engine_) == (
        whole.objective_,
        whole.residual_,
        whole.status_,
        whole.engine_,
    )
    assert [record.objective for record in pieces.history_] == [
        record.objective for record in whole.history_
    ]
    # Every step was taken once: nothing was lost but what was under way.
    assert len(checkpoints) == len({_steps(checkpoint) for checkpoint in checkpoints})


def _steps(checkpoint: Checkpoint) -> tuple[object, ...]:
    """Return what tells checkpoints apart."""
    rounds = 0 if checkpoint.outer is None else len(checkpoint.outer.rounds)
    legs = [(isinstance(leg, Solution), leg and len(leg.history)) for leg in checkpoint.runs]
    return rounds, *legs


def test_the_climb_is_on_the_way() -> None:
    make, X, y = FITS["climb"]
    _, checkpoints = in_pieces(make, X, y, 1)
    ended = [leg.status for leg in checkpoints[-1].runs if isinstance(leg, Solution)]
    assert ended[:2] == [Status.SWINGS, Status.CONVERGED]


ROUNDS = {
    "unsupervised": (lambda: UnsupervisedIKDR(3, 2, outer_tol=1e-6, max_outer=6), None),
    "semisupervised": (
        lambda: SemiSupervisedIKDR(3, 2, outer_tol=1e-4),
        np.where(np.arange(len(CLASSES)) % 4, -1, CLASSES),
    ),
    # Its rounds do not settle, and the Gammas of two cannot be compared.
    "alternative": (lambda: AlternativeIKDR(3, 2, max_outer=5), CLASSES),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_in_pieces_have_the_bits_of_whole_ones(name: str, every: int) -> None:
    make, y = ROUNDS[name]
    whole = make().fit(WINE, y)
    pieces, checkpoints = in_pieces(make, WINE, y, every)
    assert np.array_equal(pieces.components_, whole.components_)
    assert np.array_equal(pieces.embedding_, whole.embedding_)
    assert np.array_equal(pieces.labels_, whole.labels_)
    assert np.array_equal(pieces.predict(WINE), whole.predict(WINE))
    assert [each.eigenvalues for each in pieces.rounds_] == [
        each.eigenvalues for each in whole.rounds_
    ]
    assert (pieces.residual_, pieces.converged_) == (whole.residual_, whole.converged_)
    assert len(checkpoints) == len({_steps(checkpoint) for checkpoint in checkpoints})
    assert len(whole.rounds_) > 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_best_of_rounds_may_be_of_one_before_the_fit_was_cut_off() -> None:
    from ism_dask.clustering.alternation import Alternation, AlternationResult, EmbeddedW
    from ism_dask.gamma.from_embedding import ClusterGuide
    from ism_dask.records.checkpoint import OuterState
    from ism_dask.solvers.multistart import MultistartSearch

    objectives, visited = (1.0, 3.0, 2.0, 2.5), list[int]()

    class Turns(Alternation):
        """Rounds of which the second has the largest J, and none settles."""

        def _first_embedding(self) -> Any:
            return _embedding(0.0)

        def _solve(self, embedding: Any, last: Solution | None, *, fully: bool) -> EmbeddedW:
            number = 0 if last is None else 1 + objectives.index(last.objective)
            visited.append(number)
            solution = _solution(objectives[number])
            return EmbeddedW(solution, self._embed(solution), f"engine {number}", "")

        def _embed(self, solution: Solution) -> Any:
            return _embedding(solution.objective)

    def run(saved_fit: CheckpointedFit) -> AlternationResult:
        search, nothing = MultistartSearch("auto", ISM().stopping), cast(Any, None)
        turns = Turns(nothing, ClusterGuide(), nothing, 2, 1, search, saved_fit)
        return turns.run(1e-9, 4, lambda _: None)

    saved: list[Checkpoint] = []
    assert run(CheckpointedFit(keep=saved.append)).best.engine == "engine 1"
    (after_three,) = [each for each in saved if len(_standing(each).rounds) == 3]
    assert isinstance(after_three.outer, OuterState)
    visited.clear()
    resumed = run(CheckpointedFit(after_three))
    assert (resumed.best.engine, resumed.best.solution.objective) == ("engine 1", 3.0)
    assert [each.objective for each in resumed.rounds] == [1.0, 3.0, 2.0, 2.5]
    assert visited == [3]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("kernel", "best"), [("gaussian", 1), ("multiquadric", 2)])
def test_time_that_is_up_does_not_cost_the_best_of_earlier_rounds(kernel: str, best: int) -> None:
    def make() -> UnsupervisedIKDR:
        return UnsupervisedIKDR(
            2,
            2,
            kernel=kernel,
            outer_tol=1e-9,
            max_outer=4,
            solver=ISM(max_seconds=1e3),
            random_state=0,
        )

    whole, checkpoints = in_pieces(make, WINE, None, 1)
    assert int(np.argmax([each.objective for each in whole.rounds_])) + 1 == best
    after_three = next(each for each in checkpoints if each.outer and len(each.outer.rounds) == 3)
    rounds = _standing(after_three).rounds
    late = (*rounds[:-1], replace(rounds[-1], seconds=1e6))
    model = make()
    with saving_checkpoints(
        CheckpointedFit(Checkpoint(replace(_standing(after_three), rounds=late)))
    ):
        model.fit(WINE)
    assert [each.iterations for each in model.rounds_][3:] == [1]
    assert not model.converged_
    assert np.array_equal(model.components_, whole.components_)
    assert np.array_equal(model.embedding_, whole.embedding_)


def _standing(checkpoint: Checkpoint) -> Any:
    return checkpoint.outer


def _embedding(value: float) -> Any:
    from ism_dask.clustering.spectral_embedding import Embedding

    return Embedding(np.array([1.0 + value]), None, "exact", None)  # type: ignore[arg-type]


def _solution(objective: float) -> Solution:
    W = np.full((2, 1), objective)
    return Solution(W, np.ones(1), 1.0, objective, 0.0, W, 1, Status.CONVERGED, ())


def test_only_the_first_fit_of_a_block_is_journaled() -> None:
    saved: list[Checkpoint] = []
    make, X, y = FITS["exact"]
    with saving_checkpoints(CheckpointedFit(keep=saved.append)):
        make().fit(X, y)
        first = len(saved)
        again = make().fit(X, y)
    assert first == len(saved) > 0
    assert np.array_equal(again.components_, make().fit(X, y).components_)


def test_the_time_before_a_fit_was_cut_off_counts() -> None:
    make, X, y = FITS["exact"]
    _, checkpoints = in_pieces(make, X, y, 1)
    seconds = [leg.history[-1].seconds for each in checkpoints for leg in each.runs if leg]
    assert seconds == sorted(seconds)
    state = checkpoints[1].runs[0]
    assert state is not None
    assert CheckpointedFit(checkpoints[1]).seconds < state.history[-1].seconds
    solution = in_pieces(make, X, y, 100)[1][-1]
    assert (
        CheckpointedFit(solution).run_or_restore(lambda *_: pytest.fail("it is known"))
        is solution.runs[0]
    )
