"""Summaries of a run in words and figures, the same on a terminal and on a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flows import text
from flows.errors import FlowError
from storage import Run

# W with a residual up to this counts as stationary, as a converged fit claims.
_SMALL = 1e-4
# Settings of how the run was saved, not of how it was computed.
_STORAGE_SETTINGS = ("run", "force")
FOLD_COLUMNS = ("fold", "accuracy", "cost", "seconds", "iterations")


@dataclass(frozen=True)
class Fact:
    """A value with its name and, if it needs explaining, its meaning."""

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True)
class Kind:
    """How to summarise runs of one kind from their metrics.

    Attributes
    ----------
    key : str
        A key that the metrics of every such run have.
    subject, short : callable
        Return the data and settings of the run: `subject` in a line, `short` in a few words.
    headline, glance : callable
        `headline` returns the main figure in words, `glance` the figures at the top of a report.
    fitted : bool
        Whether the run fitted one W, or one for each fold, and so reports convergence, engine
        and residual.
    """

    key: str
    subject: Callable[[Mapping[str, Any]], str]
    short: Callable[[Mapping[str, Any]], str]
    headline: Callable[[Mapping[str, Any]], str]
    glance: Callable[[Mapping[str, Any]], list[Fact]]
    fitted: bool = True


def kind_of(run: Run) -> Kind:
    """Return how to summarise a run; raise a FlowError if its kind or its metrics are unknown."""
    if not has_kind(run):
        raise FlowError(
            f"{run.name!r} has no record of how it came about: it was not made by `ism-dask`, or "
            "by a later version of it"
        )
    return KINDS[run.kind]


def has_kind(run: Run) -> bool:
    """Return whether a run is of a known kind and has the metrics of that kind."""
    return run.kind in KINDS and KINDS[run.kind].key in run.metrics


def run_subject(run: Run) -> str:
    """Return the data and settings of a run in a line."""
    return kind_of(run).subject(run.metrics)


def key_figures(run: Run) -> list[Fact]:
    """Return the main figures of a run, those at the top of its report."""
    return kind_of(run).glance(run.metrics)


def trust_figures(run: Run) -> list[Fact]:
    """Return how W was computed and how far to trust it; for folds, the facts of the worst."""
    if not kind_of(run).fitted:
        return []
    account = _account(run.metrics)
    return [
        Fact("Converged", *_convergence(account)),
        Fact("Engine", str(account["engine"]), account["engine_note"]),
        Fact("Error of J", *_bound(account["engine_error"])),
        Fact("Residual", account["checked"], _residual(account["residual"])),
        *_features(account),
    ]


def run_settings(run: Run) -> list[Fact]:
    """Return the settings of a run, and the kernel parameters fitted to its data."""
    settings = {key: value for key, value in run.config.items() if key not in _STORAGE_SETTINGS}
    settings = {key: value for key, value in settings.items() if value is not None}
    fitted = run.metrics.get("fitted_kernel", {})
    kernel_facts = {f"fitted {key}": value for key, value in fitted.items() if key != "name"}
    facts = {**settings, **kernel_facts}
    return [Fact(key.replace("_", " "), to_text(value)) for key, value in facts.items()]


def to_text(value: Any) -> str:
    """Return a plain value as text for people."""
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
    """Return how a fit ended: its engine, error and residual; for folds, those of all together."""
    results = metrics.get("results")
    if not results:
        return {**metrics, "checked": text.residual_words(dict(metrics), metrics["rows"])}
    unconverged = [each for each in results if not each["converged"]]
    worst = max(results, key=lambda each: each["residual"])
    return {
        "converged": not unconverged,
        "status": unconverged[0]["status"] if unconverged else "converged",
        "engine": " and ".join(dict.fromkeys(each["engine"] for each in results)),
        "engine_error": max(each["engine_error"] for each in results),
        "engine_note": text.note_words(results),
        "residual": worst["residual"],
        "checked": f"{worst['residual']:.2g} in the worst fold, true kernel, "
        f"{worst['residual_rows']:,} rows",
    }


def _convergence(account: Mapping[str, Any]) -> tuple[str, str]:
    if account["converged"]:
        return "yes", "W is stationary, and neither steps nor a look around found a higher J."
    status = account.get("status", "")
    outcome = "The best W so far was saved."
    if status == "converged":
        return "no", f"W did, but the rounds did not. {outcome}"
    return "no", f"It {text.ending_words(status)}. {outcome}"


def _bound(error: float) -> tuple[str, str]:
    if error < text.ROUNDING:
        return (
            f"{error:.1e} at most",
            "The engine leaves nothing out: this is a bound on what rounding does to J.",
        )
    if not math.isfinite(error):
        return "no bound", "The engine approximates, and no bound on the error of J is known."
    return (
        f"{error:.1e} at most",
        "The engine approximates: the true J is within this share of the reported one.",
    )


def _features(account: Mapping[str, Any]) -> list[Fact]:
    """Return whether each new feature adds to J; no fact for folds, whose features differ."""
    if "eigenvalues" not in account:
        return []
    advice = text.components_words(dict(account))
    every_one_counts = "Each counts for J, and none outside of W would count for more."
    return [
        Fact("Number of new features", f"{len(account['eigenvalues'])}", advice or every_one_counts)
    ]


def _residual(value: float) -> str:
    explanation = (
        "How far W is from a point where the objective is stationary, under the true kernel: "
        "0 at one, near 1 far from any. "
    )
    if value <= _SMALL:
        return f"{explanation}This one is small."
    return explanation + (
        "W is no stationary point." if value > text.LARGE_RESIDUAL else "This one is not small."
    )


def _fit_glance(metrics: Mapping[str, Any]) -> list[Fact]:
    return [
        Fact("Objective J", f"{metrics['objective']:.6g}"),
        Fact("Eigengap", f"{metrics['eigengap']:.4g}"),
        Fact("Iterations", f"{metrics['iterations']:,}"),
        Fact("Seconds", f"{metrics['seconds']:.2f}"),
    ]


def _cluster_glance(metrics: Mapping[str, Any]) -> list[Fact]:
    return [
        *(Fact(f"NMI with {name}", f"{value:.3f}") for name, value in metrics["nmi"].items()),
        Fact("Clusters", f"{metrics['n_clusters']:,}"),
        Fact("Objective J", f"{metrics['objective']:.6g}"),
        Fact("Rounds", f"{len(metrics['rounds']):,}"),
        Fact("Seconds", f"{metrics['seconds']:.2f}"),
    ]


def _crossval_glance(metrics: Mapping[str, Any]) -> list[Fact]:
    mean, sd = metrics["mean"], metrics["sd"]
    return [
        Fact("Accuracy", f"{mean['accuracy']:.4f} ± {sd['accuracy']:.4f}"),
        Fact("Folds", f"{len(metrics['results'])} of {metrics['folds']}"),
        Fact("Objective J", f"{-mean['cost']:.6g}"),
        Fact("Seconds per fold", f"{mean['seconds']:.2f}"),
    ]


def _nmi(metrics: Mapping[str, Any]) -> str:
    if not metrics["nmi"]:
        return _objective(metrics)
    return f"NMI {max(metrics['nmi'].values()):.3f}"


def _objective(metrics: Mapping[str, Any]) -> str:
    return f"J {metrics['objective']:.4g}"


def _accuracy(metrics: Mapping[str, Any]) -> str:
    return f"accuracy {metrics['mean']['accuracy']:.3f}"


def _data_subject(title: str) -> Callable[[Mapping[str, Any]], str]:
    def subject(metrics: Mapping[str, Any]) -> str:
        split = metrics.get("split")
        data = metrics["dataset"] if split in (None, "all") else f"{metrics['dataset']} ({split})"
        return (
            f"{title} {data}: {metrics['rows']:,} rows, {metrics['columns']:,} columns, "
            f"{metrics['kernel']} kernel, q = {metrics['n_components']}"
        )

    return subject


def _with_q(metrics: Mapping[str, Any]) -> str:
    return f"{metrics['dataset']} {metrics['kernel']} q={metrics['n_components']}"


def _with_k(metrics: Mapping[str, Any]) -> str:
    return f"{metrics['dataset']} {metrics['kernel']} k={metrics['n_clusters']}"


def _paper_subject(_metrics: Mapping[str, Any]) -> str:
    return (
        'Tables 4 and 5 and Figures 1a and 1b of "Solving Interpretable Kernel Dimension '
        'Reduction" (NeurIPS 2019), measured again beside the published values'
    )


def _paper_headline(metrics: Mapping[str, Any]) -> str:
    return text.count_noun(len(metrics["cells"]), "cell")


def _paper_glance(metrics: Mapping[str, Any]) -> list[Fact]:
    cells = metrics["cells"]
    lost = [cell for cell in cells if cell["lost"]]
    return [
        Fact("Cells", f"{len(cells):,}"),
        Fact("Folds", f"{sum(cell['folds'] for cell in cells):,}"),
        Fact("Lines and pictures", f"{len(metrics['others']):,}"),
        Fact("Cells with something lost", f"{len(lost):,}"),
    ]


KINDS = {
    "fit": Kind("dataset", _data_subject("W of all rows of"), _with_q, _objective, _fit_glance),
    "cluster": Kind("dataset", _data_subject("Clusters of"), _with_k, _nmi, _cluster_glance),
    "crossval": Kind(
        "dataset", _data_subject("Cross-validation of"), _with_q, _accuracy, _crossval_glance
    ),
    "tables": Kind(
        "cells", _paper_subject, lambda _: "paper", _paper_headline, _paper_glance, fitted=False
    ),
}
