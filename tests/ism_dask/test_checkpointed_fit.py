"""Fits that are cut off after any of their steps, and go on: the same bits, and little lost."""

from dataclasses import replace

import numpy as np
import pytest
from models import CULTIVAR, WINE, hsic_model
from sklearn.datasets import load_breast_cancer

from ism_dask import AlternativeIKDR, PredictiveIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.kernels import Gaussian
from ism_dask.observe import saving_checkpoints
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.solvers import ISM

SOME = np.where(np.arange(178) % 4, -1, CULTIVAR)
TUMOURS, KINDS = (each[:300] for each in load_breast_cancer(return_X_y=True))
ROWS = np.random.default_rng(0).normal(size=(120, 5))
WAVES = np.sin(2 * ROWS[:, 0]) + ROWS[:, 1] * ROWS[:, 2]


class CutOffError(Exception):
    """The process is gone."""


def in_pieces(make, X, y, every):
    """Fit, cut off after each so many steps; return the model and its checkpoints."""
    checkpoints = []
    while True:
        steps = []

        def keep(checkpoint, steps=steps):
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


def supervised(**given):
    given = {"kernel": Gaussian("median"), **given}
    return lambda: hsic_model(2, random_state=0, **given)


FITS = {
    "exact": (supervised(solver=ISM(tol=1e-9)), WINE, CULTIVAR),
    "landmarks": (supervised(engine="landmarks", solver=ISM(tol=1e-6)), WINE, CULTIVAR),
    "polynomial": (supervised(kernel="polynomial", engine="landmarks"), WINE, CULTIVAR),
    "closed_form": (supervised(kernel="linear"), WINE, CULTIVAR),
    # Swings at q = 2, and goes on along the slope.
    "climb": (supervised(), TUMOURS, KINDS),
    "prediction": (lambda: PredictiveIKDR(2, random_state=0), ROWS, WAVES),
    "unsupervised": (lambda: UnsupervisedIKDR(3, 2, outer_tol=1e-6, max_outer=6), WINE, None),
    "semisupervised": (lambda: SemiSupervisedIKDR(3, 2, outer_tol=1e-4), WINE, SOME),
    # Its rounds do not settle, and the Gammas of two cannot be compared.
    "alternative": (lambda: AlternativeIKDR(3, 2, max_outer=3), WINE, CULTIVAR),
}
EVERY = {"alternative": 3, "prediction": 4}
# Those that climb along the gradient, and how many runs, which swing, come before.
CLIMBS = {"climb": 1, "prediction": 0}
OF_A_FIT = ("objective_", "eigengap_", "residual_", "converged_", "status_", "report_")
ARRAYS = ("components_", "eigenvalues_", "embedding_", "labels_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "every"), [*((name, EVERY.get(name, 1)) for name in FITS), ("exact", 4)]
)
def test_a_fit_in_pieces_has_the_bits_of_a_whole_one(name, every):
    make, X, y = FITS[name]
    whole = make().fit(X, y)
    pieces, checkpoints = in_pieces(make, X, y, every)
    for each in ARRAYS:
        assert np.array_equal(getattr(pieces, each, None), getattr(whole, each, None)), each
    for each in OF_A_FIT:
        # A prediction has no engine.
        assert getattr(pieces, each, None) == getattr(whole, each, None), each
    for one, other in zip(_history(pieces), _history(whole), strict=True):
        assert replace(one, seconds=0.0) == replace(other, seconds=0.0)
    # Every step was taken once: nothing was lost but what was under way.
    assert len(checkpoints) == len({_steps(checkpoint) for checkpoint in checkpoints})
    if hasattr(whole, "rounds_"):
        assert len(whole.rounds_) > 2
        assert np.array_equal(pieces.predict(X), whole.predict(X))
    if name in CLIMBS:
        number = CLIMBS[name]
        runs = [each.runs for each in checkpoints if len(each.runs) > number]
        steps = [each[number] for each in runs]
        assert len(steps) > 3
        assert all(step.curvature for step in steps)


def _history(model):
    return model.rounds_ if hasattr(model, "rounds_") else model.history_


def _steps(checkpoint):
    """Return what tells checkpoints apart."""
    rounds = 0 if checkpoint.outer is None else len(checkpoint.outer.rounds)
    legs = [leg and leg.iteration for leg in checkpoint.runs]
    return rounds, *legs


def test_only_the_first_fit_of_a_block_is_journaled():
    saved, (make, X, y) = [], FITS["exact"]
    with saving_checkpoints(CheckpointedFit(save=saved.append)):
        make().fit(X, y)
        first = len(saved)
        again = make().fit(X, y)
    assert first == len(saved) > 0
    assert np.array_equal(again.components_, make().fit(X, y).components_)


def test_the_time_before_a_fit_was_cut_off_counts():
    make, X, y = FITS["exact"]
    _, checkpoints = in_pieces(make, X, y, 1)
    seconds = [leg.history[-1].seconds for each in checkpoints for leg in each.runs if leg]
    assert seconds == sorted(seconds)
    assert [CheckpointedFit(each).earlier_seconds for each in checkpoints] == seconds
