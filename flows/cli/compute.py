"""The commands that compute a run: fit, crossval, cluster, unfold, tables and resume."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.launch import LazyFlow
from flows.cli.options import Plain, RunName
from flows.cli.output import Output
from flows.cli.summary import print_ending
from flows.errors import FlowError, SettingsError
from flows.paper.settings import TablesSettings
from flows.settings.base import FlowSettings
from flows.settings.runs import ClusterSettings, CrossvalSettings, FitSettings
from flows.settings.unfolding import UnfoldSettings

if TYPE_CHECKING:
    from flows.results.base import RunResult
    from flows.services.leases import Lease


_CROSSVAL = LazyFlow(plain="flows.runs.crossval:crossval_plain", flow="flows.crossval:run_crossval")
_FIT = LazyFlow(plain="flows.runs.fit:fit_plain", flow="flows.fit:run_fit")
_CLUSTER = LazyFlow(plain="flows.runs.clustering:cluster_plain", flow="flows.cluster:run_cluster")
_UNFOLD = LazyFlow(plain="flows.runs.unfolding:unfold_plain", flow="flows.unfold:run_unfold")
# By the names of their tables in a run file.
RUN_FLOWS = {"fit": _FIT, "crossval": _CROSSVAL, "cluster": _CLUSTER, "unfold": _UNFOLD}
_TABLES = LazyFlow(plain="flows.paper.measure:tables_plain", flow="flows.tables:run_tables")


def crossval(
    settings: CrossvalSettings,
    *,
    plain: Plain = False,
    output: Output,
) -> None:
    """Cross-validate W: the accuracy of an RBF support vector machine on X W.

    W is fitted to the training rows of each fold alone.

    The last rows of the table are mean and population standard deviation.
    """
    _compute(_CROSSVAL, settings, output, plain=plain)


def fit(
    settings: FitSettings,
    *,
    plain: Plain = False,
    output: Output,
) -> None:
    """Fit W to all rows of a data set and save it as a run, for `ism-dask transform`."""
    _compute(_FIT, settings, output, plain=plain)


def cluster(
    settings: ClusterSettings,
    *,
    plain: Plain = False,
    output: Output,
) -> None:
    """Find clusters of all rows and the new features they show in; save both as a run."""
    _compute(_CLUSTER, settings, output, plain=plain)


def unfold(
    settings: UnfoldSettings,
    *,
    plain: Plain = False,
    output: Output,
) -> None:
    """Place all rows in a picture that keeps neighbours and depends on a label; save it as a run.

    `storage.result_arrays(RUN)["coordinates"]` has the coordinates.

    `ism-dask transform RUN new.csv -o placed.csv` places other rows beside them.
    """
    _compute(_UNFOLD, settings, output, plain=plain)


def tables(
    settings: TablesSettings,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for tables in Markdown and the page in HTML as well."
        ),
    ] = None,
    plain: Plain = False,
    output: Output,
) -> None:
    """Measure the paper's tables and figures again, all methods, beside the published values.

    Each fold is saved as soon as it is measured, so that the same command resumes after an
    interruption. Wine, Cancer and Face take some ten minutes, MNIST hours.
    """
    _compute(_TABLES, settings, output, plain=plain, out=out)


def _compute(
    flow: LazyFlow,
    settings: FlowSettings,
    output: Output,
    *,
    plain: bool,
    out: Path | None = None,
) -> None:
    """Run a flow, print the summary of its run, and write tables into the folder `out`, if given.

    Raise a FlowError if a part of the run could not be computed.
    """
    result: RunResult = flow.run(settings, output, plain=plain)
    print_result(result, output)
    if out is not None:
        from flows.reports.files import write_tables  # noqa: PLC0415

        for path in write_tables(result.run, out):
            output.say(str(path))
    if problem := result.failure:
        output.fail(result.to_json(), problem)
    output.finish(result.to_json())


def print_result(result: RunResult, output: Output) -> None:
    """Print the summary of a run."""
    if output.silent:
        return
    from flows.reports.summary import summarise  # noqa: PLC0415

    print_ending(summarise(result), output)
    output.say(f"saved at {result.path}; `ism-dask report {result.run}` makes a page of it")


# For each kind of run that can be resumed: its settings, its flow, and what resuming changes.
# `force`: the run was checked when it began, and may replace an earlier run of its name; for tables
# it would remove the results to continue from.
_FITS = {"afresh": False, "force": True}
_RESUMABLE: dict[str, tuple[type[Any], LazyFlow, dict[str, Any]]] = {
    "fit": (FitSettings, _FIT, _FITS),
    "crossval": (CrossvalSettings, _CROSSVAL, _FITS),
    "cluster": (ClusterSettings, _CLUSTER, _FITS),
    "unfold": (UnfoldSettings, _UNFOLD, _FITS),
    "tables": (TablesSettings, _TABLES, {"force": False}),
}


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

    It comes to the same bits as if it had not been cut off. The command that began it, given
    once more, does the same.
    """
    from flows.services.leases import find_lease  # noqa: PLC0415
    from flows.settings.choices import check_run_name  # noqa: PLC0415

    check_run_name(name)
    lease = find_lease(name)
    if lease is None or lease.kind not in _RESUMABLE:
        raise SettingsError(_nothing_to_resume(name))
    if lease.held:
        raise FlowError(f"{lease.description}: there is nothing to resume")
    _compute(_RESUMABLE[lease.kind][1], _lease_settings(lease, scheduler), output, plain=plain)


def _lease_settings(lease: Lease, scheduler: str | None) -> Any:
    kind, _, changes = _RESUMABLE[lease.kind]
    given = {**lease.settings, "run": lease.run, **changes}
    if scheduler is not None and "scheduler" not in given:
        raise SettingsError(f"a run of {lease.kind} takes no `scheduler`: leave it out")
    if scheduler is not None:
        given["scheduler"] = scheduler
    try:
        return kind.parse(given)
    except SettingsError as error:
        raise SettingsError(
            f"the run {lease.run!r} cannot be resumed ({error}): give its command once more"
        ) from error


def _nothing_to_resume(name: str) -> str:
    from flows.services.leases import list_leases  # noqa: PLC0415
    from storage import saved_run_path  # noqa: PLC0415

    if saved_run_path(name) is not None:
        return f"the run {name!r} is complete; see `ism-dask show {name}`"
    names = ", ".join(lease.run for lease in list_leases())
    return f"no run {name!r} was interrupted; {f'there are {names}' if names else 'none was'}"
