"""Context variables that have a value within a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Value = TypeVar("_Value")


@contextmanager
def bound(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """Give a context variable a value in the block, and its earlier one at the end."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
