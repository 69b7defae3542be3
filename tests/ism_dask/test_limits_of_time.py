"""A limit of time holds for all parts of a fit by prediction, not for its steps alone."""

import numpy as np
import pytest
from models import CULTIVAR, WINE, quiet

from ism_dask import PredictiveIKDR, intervals
from ism_dask.selection.sample import Sample
from ism_dask.solvers import Ascent
from ism_dask.solvers.ascent import ascend_roughly
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
def test_features_that_span_their_support_are_no_maximum_and_no_error():
    """Five weights of a W with five columns: no direction is left to turn to."""
    fitted = PredictiveIKDR(5, max_features=5).fit(WINE, CULTIVAR)
    certificate = fitted.certify(WINE, CULTIVAR)
    assert not certificate.is_certified
    assert "W spans all that it may use" in certificate.reason
    with pytest.raises(ValueError, match="W spans all 5 features that it may use, so that no"):
        intervals(fitted, WINE, CULTIVAR)
