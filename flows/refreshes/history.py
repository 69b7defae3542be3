"""The history of a published run: as table rows, as Markdown, and as a page with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from flows.errors import SettingsError
from flows.refreshes.published import history_of, published_run
from flows.reports.blocks import Block, Fact, Summary, Table
from flows.reports.html import render_history, write_page
from flows.reports.markdown import render_markdown
from flows.reports.pictures import Figure, drawn
from flows.results.refresh import RefreshResult
from flows.text import new_feature, number
from storage import refreshed_names
from storage.errors import did_you_mean

COLUMNS = ("run", "time (UTC)", "rows", "J", "gain", "turn", "steps", "state")
# The columns whose weights the page draws: those with the largest weights in the last run.
_MOST_LINES = 6
_SECONDS_PER_DAY = 86_400


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
        (new_feature(each.feature), each.column, f"{each.before:+.3f}", f"{each.after:+.3f}")
        for each in comparison.moved
    )
    drift = tuple(
        (new_feature(each.feature), f"{each.share_outside:.2%}", f"{each.mean_shift:+.3f}")
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
    """Draw J per row pair and the largest weights, by the time of the refresh."""
    runs = list({each.run: each for each in history if each.components}.values())
    if len(runs) < 2:
        return []
    days = [datetime.fromisoformat(each.time).timestamp() / _SECONDS_PER_DAY for each in runs]
    return [
        _objective(runs, days),
        *(_weights(runs, days, k) for k in range(len(runs[-1].components))),
    ]


def _objective(runs: Sequence[RefreshResult], days: Sequence[float]) -> Figure:
    values = [each.objective / max(each.rows - 1, 1) ** 2 for each in runs]
    ends = f"from {number(values[0])} to {number(values[-1])}"
    return _by_date(
        "Objective",
        f"J / (n - 1)^2, {ends}: comparable, whatever the rows.",
        {"J / (n - 1)^2": list(zip(days, values, strict=True))},
        "objective J",
    )


def _weights(runs: Sequence[RefreshResult], days: Sequence[float], k: int) -> Figure:
    """Draw the largest weights of feature k of the last run, with aligned signs."""
    last = runs[-1]
    names = [last.columns[j] for j in np.argsort(-np.abs(last.components[k]))[:_MOST_LINES]]
    reference = dict(zip(last.columns, last.components[k], strict=True))
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for day, each in zip(days, runs, strict=True):
        row = each.components[k] if k < len(each.components) else ()
        weights = dict(zip(each.columns, row, strict=False))
        sign = np.sign(sum(weights.get(name, 0.0) * reference[name] for name in reference)) or 1.0
        for name in names:
            if name in weights:
                lines[name].append((day, float(sign) * weights[name]))
    ends = ", ".join(f"{name} {points[-1][1]:+.2f}" for name, points in lines.items())
    caption = f"Its largest weights; signs are aligned. The last: {ends}."
    return _by_date(new_feature(k), caption, lines, "weight")


def _by_date(
    title: str, caption: str, lines: Mapping[str, list[tuple[float, float]]], quantity: str
) -> Figure:
    """Draw lines through points of days since 1970 and values."""
    # It imports matplotlib, which tables of the history do not need.
    from flows.reports.svg import draw_dated_lines  # noqa: PLC0415

    named = [(name, np.array(points)) for name, points in lines.items()]
    return drawn(title, caption, draw_dated_lines, lines=named, quantity=quantity)
