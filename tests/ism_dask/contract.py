"""The checks of scikit-learn's contract, for any scikit-learn and pytest that may be installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks


def contract_of(
    estimators: Sequence[BaseEstimator], exempt: Callable[[BaseEstimator], dict[str, str]]
) -> pytest.MarkDecorator:
    """Return the mark that runs a test with each estimator and each check.

    `exempt` returns the checks that an estimator is expected to fail, with the reasons. pytest 9
    warns about the generator that scikit-learn before 1.9 hands to it.
    """
    made: Any = parametrize_with_checks(estimators, expected_failed_checks=exempt)
    names, checks = made.args
    return pytest.mark.parametrize(names, list(checks), **made.kwargs)
