"""The callback protocol of scikit-learn, for versions that have it (1.9 and later)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ism_dask._types import Array

_Function = TypeVar("_Function", bound=Callable[..., Any])

try:
    from sklearn import callback as sklearn_callback
except ImportError:  # an earlier scikit-learn: estimators have no `set_callbacks`
    sklearn_callback = None

# Frames of the stack that `with_callbacks` adds, for warnings that point to the user's call.
EXTRA_FRAMES = 0 if sklearn_callback is None else 1


class _NoCallbacks:
    """Stands for the mixin where there is none."""


CallbackSupport: Any = getattr(sklearn_callback, "CallbackSupportMixin", _NoCallbacks)


def with_callbacks(method: _Function) -> _Function:
    """Return a method that fits, so that callbacks are torn down when it ends."""
    decorate = getattr(sklearn_callback, "with_callbacks", None)
    return method if decorate is None else cast(_Function, decorate(method))


@dataclass(frozen=True, eq=False)
class FitTask:
    """The task "fit" of an estimator; each iteration is a task within it.

    Attributes
    ----------
    context : sklearn.callback.CallbackContext
    arguments : dict
        The estimator and the data of the fit, as callbacks get them.
    """

    context: Any
    arguments: dict[str, Any]

    def on_iteration(self, attributes: Callable[[], dict[str, Array]]) -> None:
        """Report the end of an iteration; `attributes` returns those that a fit would set there.

        A request of a callback to stop has no effect, as in scikit-learn 1.9.
        """
        task = self.context.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(**self.arguments)
        task.call_on_fit_task_end(**self.arguments, reconstruction_attributes=attributes)


@contextmanager
def fit_task(estimator: Any, X: Any, y: Any = None, weights: Any = None) -> Iterator[None]:
    """Report the block to the callbacks of an estimator as its fit to X (n, d) and y.

    Its attribute `_fit_task` is the task within the block; it is None without callbacks.
    """
    if not hasattr(estimator, "_init_callback_context"):
        yield
        return
    context = estimator._init_callback_context(max_subtasks=None)
    metadata = None if weights is None else {"sample_weight": weights}
    arguments = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
    context.call_on_fit_task_begin(**arguments)
    estimator._fit_task = FitTask(context, arguments)
    try:
        yield
    finally:
        del estimator._fit_task
    context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
