"""The time left that runs tell, beside the time that they then took."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.measure import Figure, say
from flows.progress.watching import watch_progress
from flows.runs.crossval import run_crossval
from flows.runs.fit import run_fit
from flows.settings.runs import CrossvalSettings, FitSettings
from ism_dask.observe.progress import TimeLeft
from storage import DatasetInfo, dataset_path, write_dataset

# How far a time left may be from the truth, and seconds below which nobody plans by it.
_FACTOR, _SHORT = 2.0, 2.0
_CLASSES, _LATENT, _COLUMNS = 10, 8, 60
_CLUSTER = 'kind = "local"\nworkers = 2\nthreads = 1\nmemory = "2 GiB"\n'


@dataclass
class Recorder:
    """A watcher that records the share and the time left at every report.

    Attributes
    ----------
    shown : list of (float, float, float or None)
        Time, share and seconds left, None where the display showed none.
    second : float or None
        The time at which the second iteration had ended.
    """

    shown: list[tuple[float, float, float | None]] = field(default_factory=list)
    second: float | None = None
    _left: TimeLeft = field(default_factory=TimeLeft)

    def tick(self, share: float, text: str) -> None:
        """Record a report."""
        now = time.monotonic()
        self._left.tick(share)
        if self.second is None and re.search(r"iteration 2, objective", text):
            self.second = now
        self.shown.append((now, share, self._left.seconds))

    def noted(self, text: str) -> None:
        """Do nothing."""

    def logged(self, text: str) -> None:
        """Do nothing."""


def time_left() -> Figure:
    """Made rows with ten classes: the time left on the display from the second iteration on.

    `shown` is the share of that time with a time left on the display. `right` is the share of
    these that are right within a factor of 2, of those with more than 2 s to go; `largest`
    and `smallest` are their extreme ratios to the truth. `share_error` is the largest difference
    between the share that is shown and the share of the time.
    """
    with TemporaryDirectory() as folder, patch.dict(os.environ, ISM_DASK_HOME=folder):
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(_CLUSTER)
        _store("small", 3000)
        _store("large", 6000)
        _store("largest", 200_000)
        lines = [_measured(name, run) for name, run in _runs(str(cluster)).items()]
    return {
        "table": lines,
        "must": "nine of ten times left on the display right within a factor of 2",
        "met": all(not line["right"] < 0.9 for line in lines),  # NaN if none is shown
    }


def _runs(cluster: str) -> dict[str, Callable[[], Any]]:
    """Return the runs to measure, by their names."""
    exact = {"dataset": "large", "criterion": "dependence", "engine": "exact"}
    fits: dict[str, dict[str, Any]] = {
        "default settings": {"dataset": "largest"},
        "exact": exact,
        "exact, published rule": exact | {"tol": 0.01},
        "landmarks": exact | {"engine": "landmarks", "n_components": 2},
        "on a cluster": exact | {"scheduler": cluster},
    }
    runs: dict[str, Callable[[], Any]] = {
        name: partial(run_fit, FitSettings(run=f"fit-{number}", **given))
        for number, (name, given) in enumerate(fits.items())
    }
    return {**runs, "ten folds": partial(run_crossval, CrossvalSettings(dataset="small"))}


def _measured(name: str, run: Callable[[], Any]) -> Figure:
    say(name)
    recorder, began = Recorder(), time.monotonic()
    with watch_progress(recorder):
        run()
    end = time.monotonic()
    since = [each for each in recorder.shown if each[0] >= (recorder.second or end)]
    ratios = np.array([left / (end - now) for now, _, left in since if left and end - now > _SHORT])
    right = (ratios <= _FACTOR) & (ratios >= 1 / _FACTOR)
    errors = [abs(share - (now - began) / (end - began)) for now, share, _ in recorder.shown]
    line = {
        "run": name,
        "seconds": end - began,
        "shown": _share_shown(since, end),
        "right": float(right.mean()) if len(ratios) else float("nan"),
        "smallest": float(ratios.min()) if len(ratios) else float("nan"),
        "largest": float(ratios.max()) if len(ratios) else float("nan"),
        "share_error": max(errors),
    }
    say(", ".join(f"{key} {value:.3g}" for key, value in line.items() if key != "run"))
    return line


def _share_shown(since: list[tuple[float, float, float | None]], end: float) -> float:
    """Return the share of the time up to `end` in which a time left was on the display."""
    if not since:
        return 0.0
    times = np.array([now for now, _, _ in since] + [end])
    shown = np.array([left is not None for _, _, left in since])
    return float(np.diff(times)[shown].sum() / (times[-1] - times[0]))


def _store(name: str, rows: int) -> None:
    """Store rows of ten classes that differ in hidden numbers, clipped at 0 like grey values."""
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(_CLASSES, _LATENT)) * 1.2, rng.integers(0, _CLASSES, rows)
    hidden = centres[y] + rng.normal(size=(rows, _LATENT))
    noise = 2 * rng.normal(size=(rows, _COLUMNS))
    X = np.maximum(0, hidden @ rng.normal(size=(_LATENT, _COLUMNS)) + noise)
    write_dataset(dataset_path(name), DatasetInfo(name, default_label="y"), [X], {"y": y})
