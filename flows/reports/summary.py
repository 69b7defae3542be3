"""What a run is told by in words and figures, on a terminal and on a page alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flows import text
from flows.errors import FlowError
from storage import Run

# A residual below which W is stationary for all that is claimed of a fit that has converged.
_SMALL = 1e-4
# Of the configuration: how the run was kept, not how it was computed.
_UNTOLD = ("run", "force")
FOLD_COLUMNS = ("fold", "accuracy", "cost", "seconds", "iterations")


@dataclass(frozen=True)
class Fact:
    """A figure, what it is called, and what it means where that has to be said."""

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True)
class Kind:
    """How runs of one kind are told of.

    Attributes
    ----------
    key : str
        What the metrics of every such run have.
    subject, short : callable
        Return what a run was made of from the metrics, in a line; in a few words.
    headline, glance : callable
        Return the main figure from the metrics; the figures to begin with.
    fitted : bool
        Whether it is of one W, or the folds of one, so that there is an account of the fit.
    """

    key: str
    subject: Callable[[Mapping[str, Any]], str]
    short: Callable[[Mapping[str, Any]], str]
    headline: Callable[[Mapping[str, Any]], str]
    glance: Callable[[Mapping[str, Any]], list[Fact]]
    fitted: bool = True


def kind_of(run: Run) -> Kind:
    """Return how a run is told of; an error where nothing is known of how it came about."""
    if not has_kind(run):
        raise FlowError(
            f"{run.name!r} has no record of how it came about: it was not made by `ism-dask`, or "
            "by a later version of it"
        )
    return KINDS[run.kind]


def has_kind(run: Run) -> bool:
    """Say whether a run is of a kind that is known here, with its figures."""
    return run.kind in KINDS and KINDS[run.kind].key in run.metrics


def run_subject(run: Run) -> str:
    """Return what a run was made of, in a line."""
    return kind_of(run).subject(run.metrics)


def key_figures(run: Run) -> list[Fact]:
    """Return the figures to begin with."""
    return kind_of(run).glance(run.metrics)


def trust_figures(run: Run) -> list[Fact]:
    """Return how W was computed and how far it can be trusted; of folds, the worst."""
    if not kind_of(run).fitted:
        return []
    account = _account(run.metrics)
    return [
        Fact("Converged", *_settled(account)),
        Fact("Engine", str(account["engine"]), account["engine_note"]),
        Fact("Error of J", *_bound(account["engine_error"])),
        Fact("Residual", account["checked"], _residual(account["residual"])),
        *_features(account),
    ]


def run_settings(run: Run) -> list[Fact]:
    """Return what was asked for, and the numbers that the data gave the kernel."""
    asked = {key: value for key, value in run.config.items() if key not in _UNTOLD}
    asked = {key: value for key, value in asked.items() if value is not None}
    fitted = run.metrics.get("fitted_kernel", {})
    known = {f"fitted {key}": value for key, value in fitted.items() if key != "name"}
    told = {**asked, **known}
    return [Fact(key.replace("_", " "), written(value)) for key, value in told.items()]


def written(value: Any) -> str:
    """Return a plain value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def fold_rows(metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row of cells (`FOLD_COLUMNS`) for each fold; the last two are mean and sd."""
    folds = [(str(each["fold"]), each) for each in metrics["results"]]
    return [_fold(*each) for each in (*folds, ("mean", metrics["mean"]), ("sd", metrics["sd"]))]


def _fold(name: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        f"{values['accuracy']:.4f}",
        f"{values['cost']:,.4f}",
        f"{values['seconds']:.3f}",
        f"{values['iterations']:g}",
    )


def _account(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the account of a fit, or of the folds together."""
    results = metrics.get("results")
    if not results:
        return {**metrics, "checked": text.residual_words(dict(metrics), metrics["rows"])}
    unsettled = [each for each in results if not each["converged"]]
    worst = max(results, key=lambda each: each["residual"])
    return {
        "converged": not unsettled,
        "status": unsettled[0]["status"] if unsettled else "converged",
        "engine": " and ".join(dict.fromkeys(each["engine"] for each in results)),
        "engine_error": max(each["engine_error"] for each in results),
        "engine_note": text.note_words(results),
        "residual": worst["residual"],
        "checked": f"{worst['residual']:.2g} in the worst fold, true kernel, "
        f"{worst['residual_rows']:,} rows",
    }


def _settled(account: Mapping[str, Any]) -> tuple[str, str]:
    if account["converged"]:
        return "yes", "W is stationary, and neither steps nor a look around found a higher J."
    status = account.get("status", "")
    kept = "The best W so far was kept."
    if status == "converged":
        return "no", f"W did, but the rounds did not. {kept}"
    return "no", f"It {text.ending_words(status)}. {kept}"


def _bound(error: float) -> tuple[str, str]:
    if error < text.ROUNDING:
        return (
            f"{error:.1e} at most",
            "The engine leaves nothing out: this is a bound on what rounding does to J.",
        )
    if not math.isfinite(error):
        return "no bound", "The engine approximates, and how far J is off cannot be told."
    return (
        f"{error:.1e} at most",
        "The engine approximates: the true J is within this share of the one that is told.",
    )


def _features(account: Mapping[str, Any]) -> list[Fact]:
    """Return whether each new feature counts; nothing of folds, whose features differ."""
    if "eigenvalues" not in account:
        return []
    advice = text.components_words(dict(account))
    told = "Each counts for J, and none outside of W would count for more."
    return [Fact("Number of new features", f"{len(account['eigenvalues'])}", advice or told)]


def _residual(value: float) -> str:
    told = (
        "How far W is from a point where the objective is stationary, under the true kernel: "
        "0 at one, near 1 far from any. "
    )
    if value <= _SMALL:
        return f"{told}This one is small."
    return told + ("W is no stationary point." if value > text.FAR else "This one is not small.")


def _fit_glance(told: Mapping[str, Any]) -> list[Fact]:
    return [
        Fact("Objective J", f"{told['objective']:.6g}"),
        Fact("Eigengap", f"{told['eigengap']:.4g}"),
        Fact("Iterations", f"{told['iterations']:,}"),
        Fact("Seconds", f"{told['seconds']:.2f}"),
    ]


def _cluster_glance(told: Mapping[str, Any]) -> list[Fact]:
    return [
        *(Fact(f"NMI with {name}", f"{value:.3f}") for name, value in told["nmi"].items()),
        Fact("Clusters", f"{told['n_clusters']:,}"),
        Fact("Objective J", f"{told['objective']:.6g}"),
        Fact("Rounds", f"{len(told['rounds']):,}"),
        Fact("Seconds", f"{told['seconds']:.2f}"),
    ]


def _crossval_glance(told: Mapping[str, Any]) -> list[Fact]:
    mean, sd = told["mean"], told["sd"]
    return [
        Fact("Accuracy", f"{mean['accuracy']:.4f} ± {sd['accuracy']:.4f}"),
        Fact("Folds", f"{len(told['results'])} of {told['folds']}"),
        Fact("Objective J", f"{-mean['cost']:.6g}"),
        Fact("Seconds per fold", f"{mean['seconds']:.2f}"),
    ]


def _nmi(told: Mapping[str, Any]) -> str:
    if not told["nmi"]:
        return _objective(told)
    return f"NMI {max(told['nmi'].values()):.3f}"


def _objective(told: Mapping[str, Any]) -> str:
    return f"J {told['objective']:.4g}"


def _accuracy(told: Mapping[str, Any]) -> str:
    return f"accuracy {told['mean']['accuracy']:.3f}"


def _of_data(title: str) -> Callable[[Mapping[str, Any]], str]:
    def subject(told: Mapping[str, Any]) -> str:
        split = told.get("split")
        data = told["dataset"] if split in (None, "all") else f"{told['dataset']} ({split})"
        return (
            f"{title} {data}: {told['rows']:,} rows, {told['columns']:,} columns, "
            f"{told['kernel']} kernel, q = {told['n_components']}"
        )

    return subject


def _with_q(told: Mapping[str, Any]) -> str:
    return f"{told['dataset']} {told['kernel']} q={told['n_components']}"


def _with_k(told: Mapping[str, Any]) -> str:
    return f"{told['dataset']} {told['kernel']} k={told['n_clusters']}"


def _of_paper(_told: Mapping[str, Any]) -> str:
    return (
        'Tables 4 and 5 and Figures 1a and 1b of "Solving Interpretable Kernel Dimension '
        'Reduction" (NeurIPS 2019), measured anew beside what was published'
    )


def _paper_headline(told: Mapping[str, Any]) -> str:
    return text.count_noun(len(told["cells"]), "cell")


def _paper_glance(told: Mapping[str, Any]) -> list[Fact]:
    cells = told["cells"]
    lost = [cell for cell in cells if cell["lost"]]
    return [
        Fact("Cells", f"{len(cells):,}"),
        Fact("Folds", f"{sum(cell['folds'] for cell in cells):,}"),
        Fact("Lines and pictures", f"{len(told['others']):,}"),
        Fact("Cells with something lost", f"{len(lost):,}"),
    ]


KINDS = {
    "fit": Kind("dataset", _of_data("W of all rows of"), _with_q, _objective, _fit_glance),
    "cluster": Kind("dataset", _of_data("Clusters of"), _with_k, _nmi, _cluster_glance),
    "crossval": Kind(
        "dataset", _of_data("Cross-validation of"), _with_q, _accuracy, _crossval_glance
    ),
    "tables": Kind(
        "cells", _of_paper, lambda _: "paper", _paper_headline, _paper_glance, fitted=False
    ),
}
