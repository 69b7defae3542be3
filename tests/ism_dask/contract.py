"""The checks of scikit-learn's contract, for any scikit-learn and pytest that may be installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks


def contract_of(
    estimators: Sequence[BaseEstimator], weights: Callable[[Any], str] = lambda _: ""
) -> pytest.MarkDecorator:
    """Return the mark that runs a test with each estimator and each check.

    `weights` returns why the checks that a weight of 2 is two rows fail for an estimator; empty if
    they pass. pytest 9 warns about the generator that scikit-learn before 1.9 hands to it.
    """

    def exempt(estimator: BaseEstimator) -> dict[str, str]:
        failing = {}
        if not get_tags(estimator).array_api_support:
            failing["check_array_api_input"] = "needs SCIPY_ARRAY_API in the environment"
        if reason := weights(estimator):
            for kind in ("dense", "sparse"):
                failing[f"check_sample_weight_equivalence_on_{kind}_data"] = reason
        return failing

    made: Any = parametrize_with_checks(estimators, expected_failed_checks=exempt)
    names, checks = made.args
    return pytest.mark.parametrize(names, list(checks), **made.kwargs)
