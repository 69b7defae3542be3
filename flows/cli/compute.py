"""The commands that compute a run: fit, crossval, cluster, tables and resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import text
from flows.cli.launch import LazyFlow
from flows.cli.options import Plain, RunName
from flows.cli.output import Output
from flows.errors import FlowError, SettingsError
from flows.paper.settings import TablesSettings
from flows.settings.runs import ClusterSettings, CrossvalSettings, FitSettings

if TYPE_CHECKING:
    from flows.runs.lease import Lease


_CROSSVAL = LazyFlow(plain="flows.runs.crossval:crossval_plain", flow="flows.crossval:run_crossval")


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
    run_crossval(settings, output, plain=plain)


def run_crossval(settings: CrossvalSettings, output: Output, *, plain: bool) -> None:
    """Run the cross-validation and print its summary."""
    summary = _CROSSVAL.run(settings, output, plain=plain)
    output.say(
        f"{settings.title}: {summary['rows']:,} rows, {summary['columns']:,} columns, "
        f"q = {summary['n_components']}"
    )
    _show_crossval(summary, output)
    output.finish(summary)


def _show_crossval(summary: dict[str, Any], output: Output) -> None:
    from flows.reports.summary import FOLD_COLUMNS, fold_rows  # noqa: PLC0415

    results, rows = summary["results"], fold_rows(summary)
    output.table(FOLD_COLUMNS, rows[:-2], rows[-2:], left=1)
    not_converged = [result for result in results if not result["converged"]]
    for status in dict.fromkeys(result["status"] for result in not_converged):
        folds = [str(result["fold"]) for result in not_converged if result["status"] == status]
        output.say(f"not converged: fold {', '.join(folds)} {text.ending_words(status)}")
    if notes := text.note_words(results):
        output.say(notes)
    output.say(f"saved as {summary['run']}; `ism-dask report {summary['run']}` makes a page of it")


_FIT = LazyFlow(plain="flows.runs.fit:fit_plain", flow="flows.fit:run_fit")


def fit(
    settings: FitSettings,
    *,
    plain: Plain = False,
    output: Output,
) -> None:
    """Fit W to all rows of a data set and save it as a run, for `ism-dask transform`."""
    run_fit(settings, output, plain=plain)


def run_fit(settings: FitSettings, output: Output, *, plain: bool) -> None:
    """Fit W and print the summary of the run."""
    summary = _FIT.run(settings, output, plain=plain)
    _show_fit(summary, output)
    output.finish(summary)


def _show_fit(summary: dict[str, Any], output: Output) -> None:
    output.say(
        f"{summary['run']}: objective {summary['objective']:.6g}, eigengap "
        f"{summary['eigengap']:.4g}, {text.count_noun(summary['iterations'], 'iteration')}, "
        f"engine {text.engine_words(summary)}, {summary['seconds']:.2f} s"
    )
    output.say(f"residual {text.residual_words(summary, summary['rows'])}")
    if summary["engine_note"]:
        output.say(summary["engine_note"])
    pairs = zip(summary["eigenvalues"], summary["loadings"], strict=True)
    rows = [
        [f"feature_{number}", ", ".join(map(_loading_words, loadings)), f"{value:.4g}"]
        for number, (value, loadings) in enumerate(pairs)
    ]
    output.table(("feature", "largest weights (standardised)", "eigenvalue"), rows, left=2)
    if advice := text.components_words(summary):
        output.say(advice)
    if not summary["converged"]:
        output.say(
            f"not converged: the best W so far was saved. It {text.ending_words(summary['status'])}"
        )
    if summary["residual"] > text.LARGE_RESIDUAL:
        output.say(
            f"the residual is {summary['residual']:.2g}: W is no stationary point. Between these "
            "rows the kernel may be zero or flat; try --sigma median"
        )
    output.say(f"saved at {summary['path']}; `ism-dask report {summary['run']}` makes a page of it")


def _loading_words(loading: dict[str, Any]) -> str:
    return f"{loading['feature']} {loading['weight']:+.2f}"


_CLUSTER = LazyFlow(plain="flows.runs.clustering:cluster_plain", flow="flows.cluster:run_cluster")


def cluster(
    settings: ClusterSettings,
    *,
    plain: Plain = False,
    output: Output,
) -> None:
    """Find clusters of all rows and the new features they show in; save both as a run."""
    run_cluster(settings, output, plain=plain)


def run_cluster(settings: ClusterSettings, output: Output, *, plain: bool) -> None:
    """Cluster the rows and print the summary of the run."""
    summary = _CLUSTER.run(settings, output, plain=plain)
    _show_clusters(summary, output)
    output.finish(summary)


def _show_clusters(summary: dict[str, Any], output: Output) -> None:
    output.say(
        f"{summary['run']}: {text.count_noun(summary['n_clusters'], 'cluster')} in "
        f"{text.count_noun(len(summary['rounds']), 'round')}, "
        f"objective {summary['objective']:.6g}, engine {text.engine_words(summary)}, "
        f"{summary['seconds']:.2f} s"
    )
    output.say(f"residual {text.residual_words(summary, summary['rows'])}")
    if summary["engine_note"]:
        output.say(summary["engine_note"])
    sizes = [[str(number), f"{size:,}"] for number, size in enumerate(summary["sizes"])]
    output.table(("cluster", "rows"), sizes, left=1)
    if summary["nmi"]:
        rows = [[name, f"{value:.3f}"] for name, value in summary["nmi"].items()]
        output.table(("label", "NMI"), rows, left=1)
    if advice := text.components_words(summary):
        output.say(advice)
    if not summary["converged"]:
        output.say(f"not converged: the best so far was saved. {_cluster_advice(summary)}")
    for file in summary["pictures"].values():
        output.say(f"picture {file}")
    output.say(f"saved at {summary['path']}; `ism-dask report {summary['run']}` makes a page of it")


def _cluster_advice(summary: dict[str, Any]) -> str:
    """Return advice for clusters that did not converge: the rounds, the fit of W, or both."""
    settings, status = summary["settings"], summary["status"]
    advice = [] if status == "converged" else [f"W {text.ending_words(status)}"]
    if summary["rounds"][-1]["change"] >= settings["outer_tol"]:
        advice.append("Raise --max-outer or --outer-tol")
    return ". ".join(advice)


_TABLES = LazyFlow(plain="flows.paper.measure:tables_plain", flow="flows.tables:run_tables")


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
    run_tables(settings, output, plain=plain, out=out)


def run_tables(
    settings: TablesSettings, output: Output, *, plain: bool, out: Path | None = None
) -> None:
    """Run the flow, and show its tables; write them into the folder `out`, if given."""
    summary = _TABLES.run(settings, output, plain=plain)
    _show_tables(summary, output)
    if out is not None:
        from flows.reports.files import write_tables  # noqa: PLC0415

        for path in write_tables(summary["run"], out):
            output.say(str(path))
    output.finish(summary)
    problems = summary["problems"]
    if problems:
        raise FlowError(
            f"{len(problems)} of the cells and lines could not be measured to the end; the first: "
            f"{problems[0]}. The others are saved as {summary['run']}"
        )


def _show_tables(summary: dict[str, Any], output: Output) -> None:
    from flows.reports.paper_tables import tables  # noqa: PLC0415

    for table in tables(summary):
        columns, rows = table.brief()
        output.say(table.title)
        output.table(columns, rows, left=1)
        for line in table.lost:
            output.say(f"lost: {line}")
    output.say(f"saved as {summary['run']}; `ism-dask report {summary['run']}` makes a page of it")


# For each kind of run that can be resumed: its settings, the function that runs it, and what
# resuming changes. `force`: the run was checked when it began, and may replace an earlier run of
# its name; for tables it would remove the results to continue from.
_FITS = {"afresh": False, "force": True}
_RESUMABLE: dict[str, tuple[type[Any], Callable[..., None], dict[str, Any]]] = {
    "fit": (FitSettings, run_fit, _FITS),
    "crossval": (CrossvalSettings, run_crossval, _FITS),
    "cluster": (ClusterSettings, run_cluster, _FITS),
    "tables": (TablesSettings, run_tables, {"force": False}),
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
    from flows.runs.lease import find_lease  # noqa: PLC0415
    from flows.settings.choices import check_run_name  # noqa: PLC0415

    check_run_name(name)
    lease = find_lease(name)
    if lease is None or lease.kind not in _RESUMABLE:
        raise SettingsError(_nothing_to_resume(name))
    if lease.held:
        raise FlowError(f"{lease.description}: there is nothing to resume")
    run = _RESUMABLE[lease.kind][1]
    run(_lease_settings(lease, scheduler), output, plain=plain)


def _lease_settings(lease: Lease, scheduler: str | None) -> Any:
    from storage.records import check_field_types  # noqa: PLC0415

    kind, _, changes = _RESUMABLE[lease.kind]
    given = {**lease.settings, "run": lease.run, **changes}
    if scheduler is not None and "scheduler" not in given:
        raise SettingsError(f"a run of {lease.kind} takes no `scheduler`: leave it out")
    if scheduler is not None:
        given["scheduler"] = scheduler
    try:
        settings = kind(**given)
        check_field_types(settings)
    except SettingsError:
        raise
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"the run {lease.run!r} was begun by another version of ism-dask ({error}): give its "
            "command once more"
        ) from error
    return settings


def _nothing_to_resume(name: str) -> str:
    from flows.runs.lease import list_leases  # noqa: PLC0415
    from storage import saved_run_path  # noqa: PLC0415

    if saved_run_path(name) is not None:
        return f"the run {name!r} is complete; see `ism-dask show {name}`"
    names = ", ".join(lease.run for lease in list_leases())
    return f"no run {name!r} was interrupted; {f'there are {names}' if names else 'none was'}"
