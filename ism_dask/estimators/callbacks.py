"""The callback protocol of scikit-learn, for versions that have it (1.9 and later)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

from ism_dask.estimators.preparation import Prepared, Report
from ism_dask.observe.fit_events import announce, fit_watcher
from ism_dask.records.iteration import State

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


@contextmanager
def reported_fit(estimator: Any, X: Any, y: Any = None, weights: Any = None) -> Iterator[Report]:
    """Announce the block as the fit of an estimator to X (n, d) and y, to watchers and callbacks.

    It yields the function that reports iterations. Each is a task of its own for callbacks, whose
    requests to stop have no effect, as in scikit-learn 1.9.
    """
    with announce(estimator.plan):
        if not hasattr(estimator, "_init_callback_context"):
            yield lambda _, state: fit_watcher().on_iteration(state)
            return
        context = estimator._init_callback_context(max_subtasks=None)
        metadata = None if weights is None else {"sample_weight": weights}
        arguments = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}

        def report(prepared: Prepared, state: State) -> None:
            fit_watcher().on_iteration(state)
            task = context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(**arguments)
            projection = partial(prepared.projection, state.current.W)
            task.call_on_fit_task_end(**arguments, reconstruction_attributes=projection)

        context.call_on_fit_task_begin(**arguments)
        yield report
        context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
