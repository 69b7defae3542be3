"""Find an earlier fit with the same settings, whose course tells how long a new one takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from flows.runs.fitting import solver_of
from flows.settings.base import HOW_SAVED
from flows.settings.runs import FitSettings
from ism_dask.observe.earlier_course import EarlierCourse
from ism_dask.records.iteration import Record
from storage import StorageError, load_model, open_run
from storage.runs import run_folder, run_names, shared_name

# Settings that change neither the iterations nor how their times relate to each other.
_NOT_OF_THE_COURSE = frozenset({*HOW_SAVED, "scheduler", "checkpoint", "stall"})
# How many of the runs that were saved last are looked at; to open one takes some 10 ms.
_LATEST = 5


def earlier_course(settings: FitSettings, run: str) -> EarlierCourse | None:
    """Return the course of a finished fit with the same settings, or None if none is found.

    That is the fit that `run` replaces, the one of the night before, or one of the latest runs.
    """
    wanted = _of_the_course(settings.to_json())
    for name in _candidates(run):
        with suppress(StorageError, TypeError, ValueError):
            found = open_run(name)
            check_seconds = found.metrics.get("check_seconds")
            if check_seconds is None or _of_the_course(found.config) != wanted:
                continue
            measured = solver_of(settings).stopping.measured
            records = [Record(**each) for each in load_model(name).history]
            return EarlierCourse(
                tuple(each.seconds for each in records),
                tuple(measured(each) for each in records),
                float(check_seconds),
            )
    return None


def _candidates(run: str) -> Iterator[str]:
    """Yield the names of runs that may be like `run`, the most probable first."""
    names = run_names()
    likely = [name for name in (run, shared_name(run)) if name in names]
    yield from likely
    latest = sorted(names, key=_changed_at, reverse=True)
    yield from [name for name in latest[:_LATEST] if name not in likely]


def _changed_at(name: str) -> float:
    # Another process may remove the run now; a link may lead out of the folder of runs.
    with suppress(OSError, StorageError):
        return run_folder(name).stat().st_mtime
    return 0.0


def _of_the_course(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _NOT_OF_THE_COURSE}
