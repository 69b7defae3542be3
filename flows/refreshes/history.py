"""The history of a published run: as table rows, as Markdown, and as a page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from flows.errors import SettingsError
from flows.refreshes.published import history_of, published_run
from flows.reports.blocks import Block, Fact, Summary, Table
from flows.reports.figures import Figure
from flows.reports.files import write_page
from flows.reports.html import render_history
from flows.reports.markdown import render_markdown
from flows.reports.picture_elements import draw_axes
from flows.results.refresh import RefreshResult
from flows.text import number
from ism_dask.pictures import drawing
from storage import new_feature_name, refreshed_names
from storage.errors import did_you_mean

COLUMNS = ("run", "time (UTC)", "rows", "J", "gain", "turn", "steps", "state")
# The columns whose weights the page draws: those with the largest weights in the last run.
_MOST_LINES = 6


def history_rows(history: Sequence[RefreshResult], published: str | None) -> list[tuple[str, ...]]:
    """Return the cells (`COLUMNS`) of each refresh."""
    return [_cells(each, published) for each in history]


def known_history(name: str) -> list[RefreshResult]:
    """Return the results of all refreshes of a run; raise SettingsError if there are none."""
    history = history_of(name)
    if not history:
        hint = did_you_mean(name, refreshed_names())
        raise SettingsError(
            f"no run {name!r} was refreshed; {hint}`ism-dask refresh FILE` refreshes one"
        )
    return history


def history_page(name: str) -> str:
    """Return the history of a published run as Markdown."""
    return render_markdown(history_summary(name))


def write_history(name: str, path: Path) -> Path:
    """Write the history of a published run as a page: HTML, or Markdown if its name ends in .md."""
    summary = history_summary(name)
    is_markdown = path.suffix.lower() == ".md"
    text = render_markdown(summary) + "\n" if is_markdown else render_history(summary)
    write_page(path, text, "-o")
    return path


def history_summary(name: str) -> Summary:
    """Return the history of a published run with its pictures."""
    history, published = known_history(name), published_run(name)
    last = history[-1]
    reasons = Block("Why it was not published", notes=last.reasons)
    blocks = [
        *([reasons] if last.reasons else []),
        Block(
            "Refreshes",
            about="Oldest first; * is published. Gain: the dependence of the new features on the "
            "label over that of the published ones. Turn: the sine of the largest angle to them. "
            "State in brackets: the files of the run are removed.",
            tables=(Table("Each refresh.", COLUMNS, tuple(history_rows(history, published))),),
        ),
        *_last_comparison(last),
        Block("Over the runs", draw=partial(_figures, history)),
    ]
    return Summary(
        run=name,
        kind="refresh",
        subject=f"{len(history)} refreshes of {name}; published: {published or 'none of them'}",
        facts=(Fact("Last refresh", last.state, last.time),),
        blocks=tuple(blocks),
    )


def _cells(each: RefreshResult, published: str | None) -> tuple[str, ...]:
    comparison = each.comparison
    return (
        each.run + (" *" if each.run == published else ""),
        each.time[:16].replace("T", " "),
        f"{each.rows:,}",
        number(each.objective),
        "" if comparison is None else f"{comparison.objective_ratio:.4g}",
        "" if comparison is None else f"{comparison.turn:.3f}",
        str(each.iterations),
        f"({each.state})" if each.pruned else each.state,
    )


def _last_comparison(last: RefreshResult) -> list[Block]:
    comparison = last.comparison
    if comparison is None:
        return []
    moved = tuple(
        (new_feature_name(each.feature), each.column, f"{each.before:+.3f}", f"{each.after:+.3f}")
        for each in comparison.moved
    )
    drift = tuple(
        (new_feature_name(each.feature), f"{each.share_outside:.2%}", f"{each.mean_shift:+.3f}")
        for each in comparison.drift
    )
    columns = tuple(
        (each.column, f"{each.mean_shift:+.3f}", f"{each.deviation_ratio:.3f}")
        for each in comparison.columns
    )
    return [
        Block(
            "The last run beside the published one",
            tables=(
                Table(
                    "Weights that moved most.", ("feature", "column", "before", "after"), moved,
                    left=2,
                ),
                Table(
                    "Rows, in the published features.",
                    ("feature", "outside the earlier range", "shift of the mean"),
                    drift,
                ),
                Table(
                    "Columns that moved most.",
                    ("column", "shift of the mean", "deviation, times"),
                    columns,
                ),
            ),
        )
    ]  # fmt: skip


def _figures(history: Sequence[RefreshResult]) -> list[Figure]:
    """Draw J per row pair and the largest weights, by run."""
    runs = list({each.run: each for each in history if each.components}.values())
    if len(runs) < 2:
        return []
    numbers = list(range(1, len(runs) + 1))
    figures = [_objective(runs, numbers)]
    return figures + [_weights(runs, numbers, k) for k in range(len(runs[-1].components))]


def _objective(runs: Sequence[RefreshResult], numbers: list[int]) -> Figure:
    values = [each.objective / max(each.rows - 1, 1) ** 2 for each in runs]
    drawn = draw_axes(
        f"Objective by run, from {number(values[0])} to {number(values[-1])}",
        partial(drawing.draw_objective, numbers=numbers, values=values, unit="run"),
    )
    return Figure("Objective", "J / (n - 1)^2 by run: comparable, whatever the rows.", drawn)


def _weights(runs: Sequence[RefreshResult], numbers: list[int], k: int) -> Figure:
    """Draw the largest weights of feature k of the last run, by run, with aligned signs."""
    last, name_of_k = runs[-1], new_feature_name(k)
    names = [last.columns[j] for j in np.argsort(-np.abs(last.components[k]))[:_MOST_LINES]]
    reference = dict(zip(last.columns, last.components[k], strict=True))
    lines: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for position, each in zip(numbers, runs, strict=True):
        row = each.components[k] if k < len(each.components) else ()
        weights = dict(zip(each.columns, row, strict=False))
        sign = np.sign(sum(weights.get(name, 0.0) * reference[name] for name in reference)) or 1.0
        for name in names:
            if name in weights:
                lines[name].append((position, float(sign) * weights[name]))
    ends = ", ".join(f"{name} {points[-1][1]:+.2f}" for name, points in lines.items())
    drawn = draw_axes(
        f"Weights of {name_of_k} by run; the last: {ends}",
        partial(
            drawing.draw_lines,
            lines=[(name, np.array(points)) for name, points in lines.items()],
            axis_names=("run", "weight"),
        ),
    )
    return Figure(name_of_k, "Its largest weights, by run; signs are aligned.", drawn)
