"""Checks of parameters; their errors name the value that came and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
from sklearn.utils import check_random_state

_LEAST_SQUARABLE = 1e-150
# The largest seed of NumPy's RandomState.
_LARGEST_SEED = 2**32 - 1


def is_whole(number: object) -> TypeGuard[int]:
    """Return whether `number` is a whole number; True and False are not."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def positive_float(what: str, number: object, otherwise: str = "") -> float:
    """Return `number` as a float, or raise a ValueError that names `what`."""
    real = isinstance(number, Real) and not isinstance(number, bool)
    if isinstance(number, Real) and real and 0 < float(number) < math.inf:
        return float(number)
    expected = f"a positive finite number {otherwise}".rstrip()
    raise ValueError(f"{what} must be {expected}; got {number!r}")


def check_open_interval(
    what: str, number: object, low: float, high: float, otherwise: str = ""
) -> None:
    """Raise a ValueError that names `what` unless `number` is between `low` and `high`."""
    if not (isinstance(number, Real) and low < float(number) < high):
        expected = f"a number in ({low}, {high}) {otherwise}".rstrip()
        raise ValueError(f"{what} must be {expected}; got {number!r}")


def check_bool(what: str, value: object) -> None:
    """Raise a ValueError unless `value` is True or False, of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{what} must be True or False; got {value!r}")  # noqa: TRY004


def check_choice(what: str, value: object, known: Iterable[str]) -> str:
    """Return `value` if it is one of the `known` names, or raise a ValueError that lists them."""
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    raise ValueError(f"{what} must be one of {', '.join(names)}; got {value!r}")


def squarable_float(what: str, number: object, otherwise: str = "") -> float:
    """Return `number` as a float whose square is finite and above 0, or raise a ValueError."""
    size = positive_float(what, number, otherwise)
    if not _LEAST_SQUARABLE <= size <= 1 / _LEAST_SQUARABLE:
        raise ValueError(
            f"{what} must be from {_LEAST_SQUARABLE:g} to {1 / _LEAST_SQUARABLE:g}, where its "
            f"square is still a number; got {size!r}"
        )
    return size


def check_positive_int(what: str, number: object, otherwise: str = "") -> None:
    """Raise a ValueError that names `what` unless `number` is a whole number from 1 up."""
    if not is_whole(number) or number < 1:
        expected = f"a whole number from 1 up {otherwise}".rstrip()
        raise ValueError(f"{what} must be {expected}; got {number!r}")


def check_seed(random_state: object) -> None:
    """Raise a ValueError unless `random_state` is a seed, a RandomState or None."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return
    if not is_whole(random_state) or not 0 <= random_state <= _LARGEST_SEED:
        raise ValueError(
            f"`random_state` must be None, a RandomState or a whole number from 0 to "
            f"{_LARGEST_SEED:,}; got {random_state!r}"
        )


def seed_of(random_state: Any) -> int:
    """Return the first number that a random state draws."""
    check_seed(random_state)
    return int(check_random_state(random_state or 0).randint(2**31))
