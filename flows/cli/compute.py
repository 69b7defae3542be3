"""The commands that compute a run, resume it and cancel it."""

from __future__ import annotations

import logging
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import Plain, RunName
from flows.cli.output import Output, print_summary
from flows.errors import FlowError, SettingsError
from flows.settings.base import DataSettings, FlowSettings, import_choices
from flows.settings.runs import CrossvalSettings, FitSettings
from flows.settings.unsupervised import ClusterSettings

if TYPE_CHECKING:
    from flows.results.runs import RunResult

# What runs each flow without Prefect.
_FLOWS = {
    "cluster": "flows.runs.clustering:run_cluster",
    "crossval": "flows.runs.crossval:run_crossval",
    "fit": "flows.runs.fit:run_fit",
    "ingest": "flows.runs.data:store_dataset",
    "refresh": "flows.refreshes.refresh:refresh",
}


def crossval(settings: CrossvalSettings, *, plain: Plain = False, output: Output) -> None:
    """Cross-validate W: the accuracy of an RBF support vector machine on X W.

    W is fitted to the training rows of each fold alone. Without --run, the run replaces an earlier
    one of its name, such as wine-gaussian-q2-crossval.

    The last rows of the table are mean and population standard deviation.
    """
    output.finish(computed_run("crossval", settings, output, plain=plain).to_json())


def fit(settings: FitSettings, *, plain: Plain = False, output: Output) -> None:
    """Fit W, the weights of new features, to a data set and save it as a run."""
    output.finish(computed_run("fit", settings, output, plain=plain).to_json())


def cluster(settings: ClusterSettings, *, plain: Plain = False, output: Output) -> None:
    """Find clusters of the rows and the new features that show them; save both as a run."""
    output.finish(computed_run("cluster", settings, output, plain=plain).to_json())


def computed_run(flow: str, settings: FlowSettings, output: Output, *, plain: bool) -> RunResult:
    """Run a flow that saves a run, print the summary of that, and return its result."""
    result: RunResult = run_flow(flow, settings, output, plain=plain)
    if not output.silent:
        from flows.reports.summary import summarise  # noqa: PLC0415

        print_summary(summarise(result), output, ending=True)
        output.say(f"saved at {result.path}; `ism-dask report {result.run}` makes a page of it")
    return result


def run_flow(flow: str, settings: FlowSettings, output: Output, *, plain: bool) -> Any:
    """Run a flow, under Prefect or without it, show its progress, and return its result."""
    if isinstance(settings, DataSettings):
        check_found(settings.dataset)  # before anything starts
    if (place := getattr(settings, "scheduler", None)) is not None:
        from flows.compute.places import cluster_place  # noqa: PLC0415

        cluster_place(place)  # for its error, too
    if plain or not has_prefect(output):
        work = resolve_name(_FLOWS[flow])  # nothing that other flows need is imported
    else:
        from flows import run_flows  # noqa: PLC0415
        from flows.tracking import flow_run  # noqa: PLC0415

        work = partial(flow_run.run_flow, getattr(run_flows, flow))
    with output.watched():
        return work(settings)


def check_found(*sources: str) -> None:
    """Raise an error if one of the sources is the path of a table that is not there."""
    for path in filter(import_choices().is_path, sources):
        from storage.tables.files import find_files  # noqa: PLC0415

        find_files(path)


def connect_to_prefect(output: Output) -> None:
    """Let Prefect use the server that there is; raise FlowError if there is none."""
    if not has_prefect(output):
        raise FlowError(
            "no Prefect server runs: start one with `ism-dask up`, or name one in PREFECT_API_URL"
        )


def has_prefect(output: Output) -> bool:
    """Let Prefect use the server that there is, and return whether there is one."""
    from flows.tracking.server import find_server, prepare_environment  # noqa: PLC0415

    prepare_environment(debug=output.debug)
    # While the server is unreachable, Prefect would report on stderr that it could not send logs.
    logging.raiseExceptions = output.debug
    try:
        return find_server() is not None
    except FlowError as error:
        raise FlowError(f"{error}. Run with --plain to do without Prefect") from error


def resume(
    name: RunName,
    *,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", "--cluster", help="Where to compute, if not where it was."),
    ] = None,
    plain: Plain = False,
    output: Output,
) -> None:
    """Resume a run that was killed, interrupted or failed, from its last checkpoint.

    The result has the same bits as that of a run without interruption. Repeating the command
    that began the run does the same.
    """
    from flows.services.leases import find_lease, list_leases  # noqa: PLC0415
    from flows.settings.run_file import FLOWS  # noqa: PLC0415
    from storage import saved_run_path  # noqa: PLC0415

    lease = find_lease(name)
    if lease is None or lease.kind not in FLOWS:
        if saved_run_path(name) is not None:
            raise SettingsError(f"the run {name!r} is complete; see `ism-dask show {name}`")
        names = ", ".join(each.run for each in list_leases() if each.kind in FLOWS)
        others = f"there are {names}" if names else "none was"
        raise SettingsError(f"no run {name!r} was interrupted; {others}")
    if lease.held:
        raise FlowError(f"{lease.description}: there is nothing to resume")
    # The run was checked when it began, and may replace an earlier run of its name.
    given = {**lease.settings, "run": lease.run, "force": True, "afresh": False}
    if scheduler is not None:
        given["scheduler"] = scheduler
    try:
        settings = FLOWS[lease.kind].parse(given)
    except SettingsError as error:
        raise SettingsError(
            f"the run {lease.run!r} cannot be resumed ({error}): give its command once more"
        ) from error
    output.finish(computed_run(lease.kind, settings, output, plain=plain).to_json())


def cancel(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, or a published one that is refreshed.")
    ],
    *,
    output: Output,
) -> None:
    """End a run that computes on this machine; `ism-dask resume` continues it.

    Its last iteration is saved, its cluster is released, and Prefect shows it as Cancelled.
    """
    from flows.runs.inventory import cancel_run  # noqa: PLC0415

    with output.watched():
        pid = cancel_run(run)
    output.say(f"process {pid} has ended")
    output.finish({"command": "cancel", "run": run, "pid": pid})
