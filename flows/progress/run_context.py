"""The context of a run: what its code knows beside its settings, in any module and thread."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flows.errors import SettingsError
from ism_dask._context import bound

if TYPE_CHECKING:
    from flows.progress.watching import Watcher


@dataclass(frozen=True)
class RunContext:
    """The context of a run. A flow takes JSON only, so these cannot be its parameters.

    Attributes
    ----------
    watchers : tuple of Watcher
        Receivers of progress reports.
    page : str or None
        Address of the page that shows the run.
    credentials : str or None
        Name of the Prefect block whose credentials are in use.
    cluster : tuple or None
        The value of `--scheduler`, and the session that it led to (`compute.session`).
    begun : list of TrackedRun
        Takes the flow run when it begins (`tracking.flow_run`).
    """

    watchers: tuple[Watcher, ...] = ()
    page: str | None = None
    credentials: str | None = None
    cluster: tuple[str, Any] | None = None
    begun: list[Any] = field(default_factory=list)


_CURRENT: ContextVar[RunContext] = ContextVar("run", default=RunContext())  # noqa: B039 - frozen


def run_context() -> RunContext:
    """Return the context of the run that computes."""
    return _CURRENT.get()


def in_context(**changes: Any) -> AbstractContextManager[None]:
    """Change some fields of the context within the block."""
    return bound(_CURRENT, replace(_CURRENT.get(), **changes))


def check_credentials(name: str | None) -> None:
    """Raise SettingsError if credentials are named that are not in use."""
    if name not in (None, run_context().credentials):
        raise SettingsError(
            f"`credentials` is {name!r}, a Prefect block: leave out --plain, or give the "
            "credentials in the environment instead"
        )
