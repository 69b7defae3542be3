"""Show where a run comes from: the command that repeats it, its data, place and settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from flows import text
from flows.reports.blocks import Block, Fact, Table
from flows.results.base import RunResult
from flows.results.runs import ClusterResult, CrossvalResult, DataResult, FitResult
from flows.results.unfolding import UnfoldResult
from flows.settings.fields import decisive_names
from flows.settings.runs import ClusterSettings, CrossvalSettings, FitSettings, NamedRunSettings
from flows.settings.unfolding import UnfoldSettings
from storage import Run

_SETTINGS: Mapping[type[RunResult], type[NamedRunSettings]] = {
    FitResult: FitSettings,
    ClusterResult: ClusterSettings,
    CrossvalResult: CrossvalSettings,
    UnfoldResult: UnfoldSettings,
}


def provenance(result: RunResult, run: Run) -> list[Block]:
    """Return the blocks at the end of the page of a saved run."""
    return [*_repetition(result), _configuration(run)]


def _repetition(result: RunResult) -> list[Block]:
    """Return how to repeat a run: its command, data and place; nothing for the paper's tables."""
    settings = _SETTINGS.get(type(result))
    if settings is None or not isinstance(result, DataResult):
        return []
    words = [result.command, *settings.command_words(result.settings)]
    command = shlex.join(["ism-dask", *words, "--run", f"{result.run}-again"])
    digest = "The digest of the rows and labels: equal data have an equal one."
    facts = (
        Fact("Data", result.data_hash, digest),
        Fact("Computed on", result.host or ""),
        Fact("Flow run", result.page or "", "Its page in the Prefect UI."),
    )
    about = "The same command with the same data and versions comes to the same result."
    return [
        Block(
            "How to repeat it",
            about=about,
            facts=tuple(fact for fact in facts if fact.value),
            command=command,
            detail=True,
        )
    ]


def _configuration(run: Run) -> Block:
    versions = tuple((name, str(version)) for name, version in run.versions.items())
    return Block(
        "Configuration",
        tables=(
            Table("Settings.", ("setting", "value"), _settings(run), left=2),
            Table("What it was computed with.", ("package", "version"), versions, left=2),
        ),
        detail=True,
    )


def _settings(run: Run) -> tuple[tuple[str, ...], ...]:
    """Return the settings of a run, and the kernel parameters fitted to its data."""
    hidden = decisive_names(NamedRunSettings, "nothing")
    settings = {key: each for key, each in run.config.items() if key not in hidden}
    settings = {key: value for key, value in settings.items() if value is not None}
    fitted = run.metrics.get("fitted_kernel", {})
    kernel = {f"fitted {key}": value for key, value in fitted.items() if key != "name"}
    return tuple(
        (key.replace("_", " "), _to_text(value)) for key, value in {**settings, **kernel}.items()
    )


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_to_text, value))
    return text.number(value) if isinstance(value, float) else str(value)
