"""The history of a published run: as table rows, as Markdown, and as a page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from flows.errors import SettingsError
from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.reports.pictures import Figure, drawn_by_date
from flows.results.refresh import FAILED, ROLLED_BACK, SUSPICIOUS, RefreshResult
from flows.results.runs import largest
from flows.runs.published import History
from ism_dask.words import new_feature, number, share
from storage import Model, StorageError, load_model, model_hash, refreshed_names
from storage.errors import did_you_mean

COLUMNS = ("run", "time (UTC)", "rows", "J", "explained", "gain", "turn", "state", "by")
# Those that 80 letters of a terminal have room for.
ON_TERMINAL = tuple(name for name in COLUMNS if name not in ("J", "by"))
# The columns whose weights the page draws: those with the largest weights in the last run.
_MOST_LINES = 6


def history_table(
    records: Sequence[RefreshResult], published: str | None, columns: Sequence[str] = COLUMNS
) -> Table:
    """Return a table with a row for each record; * marks the run that is published."""
    cells = [dict(zip(COLUMNS, _cells(each, published), strict=True)) for each in records]
    rows = tuple(tuple(row[name] for name in columns) for row in cells)
    return Table("Each refresh.", tuple(columns), rows, left=2)


def reason_lines(records: Sequence[RefreshResult]) -> list[str]:
    """Return a line for each record with reasons, such as those of a failed refresh."""
    return [
        f"{_time(each)} {_state(each)}, by {each.by}: {'; '.join(each.reasons) or each.run}"
        for each in records
        if each.reasons or each.state == ROLLED_BACK
    ]


def known_history(name: str) -> History:
    """Return the history of a published run; raise SettingsError if there is none."""
    history = History(name)
    if not history.records:
        hint = did_you_mean(name, refreshed_names())
        raise SettingsError(
            f"no run {name!r} was refreshed; {hint}`ism-dask run FILE` refreshes one if the file "
            "has the table [refresh]"
        )
    return history


def history_summary(history: History) -> Summary:
    """Return the history of a published run with its pictures."""
    name, records, published = history.name, history.records, history.published
    last = records[-1]
    failed = last.reasons if last.state in (FAILED, SUSPICIOUS) else ()
    compared = next((each for each in reversed(records) if each.comparison), None)
    shares = {each.run: share(each.comparison.explained) for each in records if each.comparison}
    known = shares.get(published or "")
    explained = f": its features explain {known} of the label" if known else ""
    return Summary(
        run=name,
        kind="refresh",
        subject=f"{name} has {len(history.runs)} runs; published: {published or 'none of them'}",
        finding=f"{published or 'No run'} is published{explained}",
        facts=(
            Fact(
                "Last refresh",
                _state(last),
                f"{_time(last)} UTC, by {last.by}",
                warnings=tuple(f"the last refresh is {last.state}: {each}" for each in failed),
            ),
        ),
        blocks=(
            Block(
                "Refreshes",
                about=say("history.about"),
                tables=(history_table(records, published),),
                notes_title="What did not go its usual way, oldest first:",
                notes=tuple(reason_lines(records)),
            ),
            *([] if compared is None else [_comparison_block(compared)]),
            Block("Over the runs", pictures=tuple(_figures(records))),
        ),
    )


def _cells(each: RefreshResult, published: str | None) -> tuple[str, ...]:
    compared, measures = each.comparison, ("explained", "gain", "turn")
    return (
        (each.run or "none") + (" *" if each.run and each.run == published else ""),
        _time(each),
        f"{each.rows:,}" if each.run else "",
        number(each.objective) if each.run else "",
        *("" if compared is None else f"{getattr(compared, name):.3f}" for name in measures),
        f"({_state(each)})" if each.pruned else _state(each),
        each.by,
    )


def _time(each: RefreshResult) -> str:
    return each.time[:16].replace("T", " ")


def _state(each: RefreshResult) -> str:
    """Return the state of a record, and how often it was so in a row."""
    return each.state if each.times == 1 else f"{each.state}, {each.times} times"


def _comparison_block(last: RefreshResult) -> Block:
    comparison = last.comparison
    assert comparison is not None
    checks = tuple(
        (each.limit, f"{each.value:.3g}", f"{each.bound:g}", "yes" if each.exceeded else "no")
        for each in comparison.checks
    )
    moved = tuple(
        (new_feature(each.feature), each.column, f"{each.before:+.3f}", f"{each.after:+.3f}")
        for each in comparison.moved
    )
    return Block(
        f"{last.run} beside {comparison.published}, which was published",
        tables=(
            Table("Limits.", ("limit", "value", "allowed", "exceeded"), checks),
            Table(say("history.moved"), ("feature", "column", "before", "after"), moved, left=2),
        ),
    )


def _figures(records: Sequence[RefreshResult]) -> list[Figure]:
    """Draw the share that is explained and the largest weights, by date."""
    # A rollback has the W of its run at a later time.
    runs, figures = [each for each in records if each.made_run], list[Figure]()
    shares = [(each.time, each.comparison.explained) for each in runs if each.comparison]
    if len(shares) > 1:
        dates, explained = zip(*shares, strict=True)
        lines = {"explained": explained}
        figures = [drawn_by_date("Explained", "The share of the label.", dates, lines)]
    models = [(each.time, model) for each in runs if (model := _model_of(each)) is not None]
    if len(models) > 1:
        _, last = models[-1]
        figures += [_weights(models, k) for k in range(last.n_components)]
    return figures


def _model_of(record: RefreshResult) -> Model | None:
    """Return the model of a run; None if its files are removed, damaged or those of another run."""
    with suppress(StorageError):
        if not record.pruned and model_hash(record.run) == record.model_hash:
            return load_model(record.run)
    return None


def _weights(models: Sequence[tuple[str, Model]], k: int) -> Figure:
    """Draw the largest weights of feature k of the last of models by date, with aligned signs."""
    times, (*_, last) = zip(*models, strict=True)
    reference = dict(largest(last, last.components[k]))
    lines: dict[str, list[float]] = {name: [] for name in [*reference][:_MOST_LINES]}
    for _, model in models:
        row = model.components[k] if k < model.n_components else ()
        weights = dict(zip(model.feature_names or (), row, strict=False))
        sign = np.sign(sum(weights.get(name, 0.0) * reference[name] for name in reference)) or 1.0
        for name, line in lines.items():
            line.append(float(sign) * weights.get(name, np.nan))
    return drawn_by_date(new_feature(k), say("history.weights"), times, lines)
