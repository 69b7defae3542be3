"""Go on with a run that was cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands import cluster, crossval, fit
from flows.console import Output
from flows.errors import FlowError, SettingsError
from flows.settings import ClusterSettings, CrossvalSettings, FitSettings

if TYPE_CHECKING:
    from flows.work.lease import Lease

EXAMPLE = "Example: ism-dask resume mnist-gaussian-q10"
HIDDEN = False

# What each kind of run is asked for, and what answers.
_KINDS: dict[str, tuple[type[Any], Callable[..., None]]] = {
    "fit": (FitSettings, fit.answer),
    "crossval": (CrossvalSettings, crossval.answer),
    "cluster": (ClusterSettings, cluster.answer),
}


def run(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="Its name; `ism-dask runs` lists them.")
    ],
    *,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", "--cluster", help="Where to compute, if not where it was."),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Run without Prefect.")] = False,
    output: Output,
) -> None:
    """Go on with a run that was killed, interrupted or failed, from where it was.

    It comes to the same bits as if it had not been cut off. The command that began it, given
    once more, does the same.
    """
    from flows.known import check_run_name  # noqa: PLC0415
    from flows.work.lease import find_lease  # noqa: PLC0415

    check_run_name(name)
    lease = find_lease(name)
    if lease is None or lease.kind not in _KINDS:
        raise SettingsError(_nothing_to_resume(name))
    if lease.held:
        raise FlowError(f"{lease.told}: there is nothing to resume")
    kind, answer = _KINDS[lease.kind]
    answer(_settings_of(kind, lease, scheduler), output, plain=plain)


def _settings_of(kind: type[Any], lease: Lease, scheduler: str | None) -> Any:
    from storage.records import check_kinds  # noqa: PLC0415

    # What there is of an earlier run of that name it was allowed to replace when it began.
    given = {**lease.settings, "run": lease.run, "afresh": False, "force": True}
    if scheduler is not None:
        given["scheduler"] = scheduler
    try:
        settings = kind(**given)
        check_kinds(settings)
    except SettingsError:
        raise
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"the run {lease.run!r} was begun by another version of ism-dask ({error}): give its "
            "command once more"
        ) from error
    return settings


def _nothing_to_resume(name: str) -> str:
    from flows.work.lease import list_leases  # noqa: PLC0415
    from storage import kept_at  # noqa: PLC0415

    if kept_at(name) is not None:
        return f"the run {name!r} is complete; see `ism-dask show {name}`"
    names = ", ".join(lease.run for lease in list_leases())
    return f"no run {name!r} was cut off; {f'there are {names}' if names else 'none was'}"
