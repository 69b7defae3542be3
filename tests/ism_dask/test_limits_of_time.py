"""A limit of time holds for all parts of a fit, not for its steps alone."""

import numpy as np
import pytest
from models import CULTIVAR, WINE, quiet

from ism_dask import PredictiveIKDR, SupervisedIKDR, intervals
from ism_dask.engines import ExactEngine
from ism_dask.kernels import Gaussian
from ism_dask.selection.sample import Sample
from ism_dask.solvers import ISM, Ascent
from ism_dask.solvers.ascent import ascend_roughly
from ism_dask.solvers.ism import SpectralSteps
from ism_dask.status import Status


@quiet
def test_after_the_limit_there_are_no_grids_of_settings_and_no_steps(monkeypatch):
    """Rows of the size of 1,300 grow in stages: all of them end."""
    rng = np.random.default_rng(0)
    X = np.vstack([WINE] * 8) + 0.1 * rng.normal(size=(8 * len(WINE), 13))
    y = X[:, 0] + X[:, 5] * X[:, 6] + 0.1 * rng.normal(size=len(X))
    evaluated, climbed, evidence = [], [], Sample.evidence

    def counted(self, W, setting):
        evaluated.append(setting)
        return evidence(self, W, setting)

    def noted(*args, **options):
        climbed.append(1)
        return ascend_roughly(*args, **options)

    monkeypatch.setattr(Sample, "evidence", counted)
    monkeypatch.setattr("ism_dask.selection.sample.ascend_roughly", noted)
    fitted = PredictiveIKDR(2, solver=Ascent(max_seconds=1e-6)).fit(X, y)
    assert fitted.status_ is Status.OVER_CAP
    # One setting of one start, for each of the two targets, where a fit without a limit tries 80.
    assert len(evaluated) <= 4
    assert not climbed
    assert np.isfinite(fitted.transform(X)).all()


@quiet
@pytest.mark.parametrize(
    ("kernel", "n", "allowed"), [("gaussian", 7000, []), ("distance", 300, ["phi", "product"])]
)
def test_after_the_limit_there_is_one_pass_over_all_pairs_of_rows_at_most(
    monkeypatch, kernel, n, allowed
):
    """By landmarks there is none: the residual under the true kernel is that of some rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    passes = []
    for name in ("phi", "product"):
        method = getattr(ExactEngine, name)

        def noted(self, W, name=name, method=method):
            passes.append(name)
            return method(self, W)

        monkeypatch.setattr(ExactEngine, name, noted)
    fitted = SupervisedIKDR(1, kernel=kernel, solver=ISM(max_seconds=1e-9)).fit(X, y)
    assert fitted.status_ is Status.OVER_CAP
    assert fitted.n_iter_ == 1
    assert passes == allowed
    true_residual = fitted.certify(X, y).residual
    assert true_residual > 1e-3
    assert fitted.residual_ == pytest.approx(true_residual, rel=1e-2)


@quiet
def test_gradient_steps_do_not_begin_after_the_limit(monkeypatch):
    """The spectral steps swing here, so that without a limit an ascent follows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 10))
    y = rng.normal(size=60)
    solver = ISM(max_seconds=3600.0)
    assert SupervisedIKDR(1, kernel=Gaussian(0.3), solver=solver).fit(X, y).converged_
    swings, begun = SpectralSteps.terminate, []

    def late(self, state):
        """Let the time run out when the steps swing."""
        if (status := swings(self, state)) is Status.SWINGS:
            self._time_limit.max_seconds = 0.0
        return status

    monkeypatch.setattr(SpectralSteps, "terminate", late)
    monkeypatch.setattr("ism_dask.solvers.search.ascend", lambda *_, **__: begun.append(1))
    fitted = SupervisedIKDR(1, kernel=Gaussian(0.3), solver=solver).fit(X, y)
    assert fitted.status_ is Status.OVER_CAP
    assert not begun


@quiet
def test_features_that_span_their_support_are_no_maximum_and_no_error():
    """Five weights of a W with five columns: no direction is left to turn to."""
    fitted = PredictiveIKDR(5, max_features=5).fit(WINE, CULTIVAR)
    certificate = fitted.certify(WINE, CULTIVAR)
    assert not certificate.is_certified
    assert "W spans all that it may use" in certificate.reason
    sure = intervals(fitted, WINE, CULTIVAR)
    assert max(sure.distance_interval) < 1e-12
    assert any("chosen few features" in each for each in sure.doubts)
    constant = WINE * (np.arange(13) < 2)
    fitted = PredictiveIKDR(2, max_features=None).fit(constant, CULTIVAR)
    with pytest.raises(ValueError, match="W spans all"):
        intervals(fitted, constant, CULTIVAR)
