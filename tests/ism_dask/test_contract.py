"""The contract of scikit-learn, which its own checks try on every estimator."""

import pytest
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from ism_dask import (
    AlternativeIKDR,
    ColoredMVU,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
)
from ism_dask.solvers import Ascent


def _exempt(estimator):
    if get_tags(estimator).array_api_support:
        return {}
    return {"check_array_api_input": "needs SCIPY_ARRAY_API in the environment"}


CHECKS = parametrize_with_checks(
    [
        PredictiveIKDR(1, solver=Ascent(max_iter=5)),
        SupervisedIKDR(),
        UnsupervisedIKDR(max_outer=3),
        SemiSupervisedIKDR(3, max_outer=3),
        AlternativeIKDR(max_outer=3),
        ColoredMVU(),
    ],
    expected_failed_checks=_exempt,
)


# Rows and labels drawn at random, as some checks have them, may have nothing to settle at. The
# list is for pytest 9, which warns about the generator of scikit-learn before 1.9.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:the graph of the:UserWarning")
@pytest.mark.parametrize(CHECKS.args[0], list(CHECKS.args[1]), **CHECKS.kwargs)
def test_the_contract_of_scikit_learn(estimator, check, monkeypatch):
    if get_tags(estimator).array_api_support:
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else it skips its checks of other arrays
    check(estimator)
