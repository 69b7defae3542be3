"""The callback protocol of scikit-learn, for versions that have it (1.9 and later)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from ism_dask.estimators.preparation import Prepared, Report
from ism_dask.observe import fit_watcher
from ism_dask.records.iteration import State

_Function = TypeVar("_Function", bound=Callable[..., Any])

try:
    from sklearn import callback as sklearn_callback
except ImportError:  # an earlier scikit-learn: estimators have no `set_callbacks`
    sklearn_callback = None

# Frames of the stack that `with_callbacks` adds, for warnings that point to the user's call.
EXTRA_FRAMES = 0 if sklearn_callback is None else 1

# The class that fits can inherit, and the decorator that tears callbacks down when a fit ends.
CallbackSupport: Any = getattr(sklearn_callback, "CallbackSupportMixin", type("Nothing", (), {}))
with_callbacks: Callable[[_Function], _Function] = getattr(
    sklearn_callback, "with_callbacks", lambda method: method
)


@contextmanager
def reported_fit(estimator: Any, X: Any, y: Any = None, weights: Any = None) -> Iterator[Report]:
    """Announce the block as the fit of an estimator to X (n, d) and y, to watcher and callbacks.

    It yields the function that reports iterations. Each is a task of its own for callbacks, whose
    requests to stop have no effect, as in scikit-learn 1.9.
    """
    watcher = fit_watcher()
    watcher.begun(estimator.plan)
    if not hasattr(estimator, "_init_callback_context"):
        yield lambda _, state: watcher.on_iteration(state)
        watcher.ended()
        return
    context = estimator._init_callback_context(max_subtasks=None)
    metadata = None if weights is None else {"sample_weight": weights}
    arguments = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}

    def report(prepared: Prepared, state: State) -> None:
        watcher.on_iteration(state)
        task = context.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(**arguments)
        projection = partial(prepared.projection, state.current.W)
        task.call_on_fit_task_end(**arguments, reconstruction_attributes=projection)

    context.call_on_fit_task_begin(**arguments)
    yield report
    context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
    watcher.ended()
