"""Compare two saved runs: their settings, their figures and their W."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flows.refreshes.comparison import moved_weights, subspace_sines
from flows.refreshes.history import moved_table
from flows.reports.blocks import Block, Summary, Table
from flows.reports.view import View, features_of
from flows.results.base import JsonRecord
from flows.results.refresh import MovedWeight
from flows.settings.fields import decisive_names
from flows.settings.runs import NamedRunSettings


@dataclass(frozen=True, kw_only=True)
class Difference(JsonRecord):
    """A setting or figure of both runs; None where a run lacks it."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True, kw_only=True)
class RunComparison(JsonRecord):
    """Two runs beside each other."""

    first: str
    second: str
    settings: tuple[Difference, ...]  # settings, kernel parameters, data, versions that differ
    figures: tuple[Difference, ...]  # numbers of both, such as the objective
    sines: tuple[float, ...] = ()  # of the angles between the two subspaces, largest first
    moved: tuple[MovedWeight, ...] = ()  # largest difference first; signs are aligned
    note: str = ""  # why W is not compared; empty if it is

    @property
    def summary(self) -> Summary:
        """The comparison as tables."""
        runs = (self.first, self.second)
        settings = tuple(
            (each.name, _text(each.first), _text(each.second)) for each in self.settings
        )
        figures = tuple(
            (each.name, _text(each.first), _text(each.second), _change(each))
            for each in self.figures
        )
        tables = [
            Table("Settings that differ.", ("setting", *runs), settings, left=3),
            Table("Figures.", ("figure", *runs, "change"), figures),
            moved_table("Weights that differ most.", self.moved, runs),
        ]
        sines = ", ".join(f"{each:.3g}" for each in self.sines)
        notes = (
            "" if settings else "the settings are the same",
            f"sines of the angles between the two subspaces: {sines}" if sines else "",
            self.note,
        )
        return Summary(
            run=f"{self.first} and {self.second}",
            kind="compare",
            subject=f"{self.first} beside {self.second}",
            facts=(),
            blocks=(
                *(Block(each.caption, tables=(each,)) for each in tables if each.rows),
                Block("Notes", notes_title="", notes=tuple(filter(None, notes))),
            ),
        )


def compare_runs(first: str, second: str) -> RunComparison:
    """Return the comparison of two saved runs."""
    views = View.of(first), View.of(second)
    comparison = RunComparison(
        first=first,
        second=second,
        settings=tuple(
            each for each in _beside(*map(_settings, views)) if each.first != each.second
        ),
        figures=tuple(_beside(*map(_figures, views))),
    )
    # The models of the runs, with names for their columns.
    before, after = (
        each.model and replace(each.model, feature_names=features_of(each.model)) for each in views
    )
    if before is None or after is None:
        return replace(comparison, note="W is not compared: one of the runs has none")
    if not set(before.feature_names or ()) & set(after.feature_names or ()):
        return replace(comparison, note="W is not compared: the runs share no column")
    sines = tuple(subspace_sines(before, after).tolist())
    return replace(comparison, sines=sines, moved=moved_weights(before, after))


def _settings(view: View) -> dict[str, Any]:
    run, hidden = view.run, decisive_names(NamedRunSettings, "nothing")
    fitted = run.metrics.get("fitted_kernel", {})
    chosen = run.metrics.get("selection") or {}
    return {
        "kind": run.kind,
        **{key: value for key, value in run.config.items() if key not in hidden},
        **{f"fitted {key}": value for key, value in fitted.items() if key != "name"},
        **{f"chosen {key}": value for key, value in chosen.items() if key != "tried"},
        "data": run.metrics.get("data_hash", "")[:8],
        **{f"version of {name}": value for name, value in run.versions.items()},
    }


def _figures(view: View) -> dict[str, Any]:
    """Return the numbers of a run; of a cross-validation the means over its folds."""
    means = dict(view.run.metrics.get("mean", {}))
    if "cost" in means:
        means["objective"] = -means.pop("cost")
    values = {**view.run.metrics, **means}
    return {key: each for key, each in values.items() if type(each) in (int, float)}


def _beside(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Difference]:
    for name in dict.fromkeys([*first, *second]):
        yield Difference(name=name, first=first.get(name), second=second.get(name))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _change(each: Difference) -> str:
    if each.first is None or each.second is None:
        return ""
    return f"{each.second - each.first:+.3g}"
