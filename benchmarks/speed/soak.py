"""Hours of `ism-dask up` with a refresh each minute: memory, file handles and disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pandas as pd
import psutil

from benchmarks.measure import Figure, say
from benchmarks.registry import long_figure
from flows.runs.published import History
from flows.services.service import service_processes
from flows.supervisor import service_records

_RUN_FILE = """
run = "sales"
[data]
source = "sales.csv"
name = "shop"
label = "churned"
[fit]
n_components = 2
[refresh]
keep = 3
max_turn = 1.0
"""
# Most rows of the table, and by how much a mean may grow and still be called flat.
_ROWS, _MOST_GROWN = 2_000, 1.05

Reading = dict[str, float]


@long_figure
def soak(minutes: str = "240") -> Figure:
    """Refresh a table that changes each minute, and watch the services and the home.

    A reading is taken each minute, of the processes that live through it. The second quarter of the
    readings is compared with the last.
    """
    with TemporaryDirectory() as folder, patch.dict(os.environ, ISM_DASK_HOME=f"{folder}/home"):
        for name in ("PREFECT_API_URL", "PREFECT_HOME"):
            os.environ.pop(name, None)
        with _up(Path(folder)):
            readings = [_next_reading(Path(folder), each) for each in range(int(minutes))]
        nights = Counter(each.state for each in History("sales").records)
    quarter = max(len(readings) // 4, 1)
    table = [_line(name, readings, quarter) for name in readings[-1]]
    return {
        "table": table,
        "refreshes": ", ".join(f"{number} {state}" for state, number in nights.items()),
        "must": f"no refresh failed, no process and no folder grew beyond {_MOST_GROWN}",
        "met": set(nights) == {"published"} and max(line["grown"] for line in table) <= _MOST_GROWN,
    }


@contextmanager
def _up(folder: Path) -> Iterator[None]:
    """Run `ism-dask up` with the schedule in the block."""
    _change_table(folder, 0)
    (folder / "run.toml").write_text(_RUN_FILE)
    _command(folder, "up", "--workers", "1", "--memory", "1GB", "--detach")
    try:
        _command(folder, "schedule", "run.toml", "--cron", "* * * * *")
        yield
    finally:
        _command(folder, "up", "--stop")


def _command(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "flows.cli", *words]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def _change_table(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(_ROWS - rng.integers(100), 5)), columns=list("vwxyz"))
    frame["churned"] = np.where(frame["v"] * frame["w"] > 0, "yes", "no")
    frame.to_csv(folder / "next.csv", index=False)
    (folder / "next.csv").replace(folder / "sales.csv")


def _next_reading(folder: Path, number: int) -> Reading:
    """Wait for the end of a minute, read, and change the table for the next refresh."""
    time.sleep((55 - time.time()) % 60)
    reading = {**_services(), **_folders(folder / "home")}
    say(f"minute {number}: {json.dumps({name: round(each, 2) for name, each in reading.items()})}")
    _change_table(folder, number + 1)
    return reading


def _services() -> Reading:
    """Return the memory and the file handles of each service, without what began this minute."""
    reading = {}
    for record in service_records():
        memory, handles = 0.0, 0
        for each in service_processes(record.name):
            with suppress(psutil.Error):
                if time.time() - each.create_time() > 60:
                    memory += each.memory_info().rss
                    handles += each.num_fds()
        reading[f"{record.name} MB"] = memory / 1e6
        reading[f"{record.name} handles"] = handles
    return reading


def _folders(home: Path) -> Reading:
    """Return the size of each folder of the home, and the number of files in all."""
    files = [each for each in home.rglob("*") if each.is_file()]
    sizes: Counter[str] = Counter()
    for each in files:
        with suppress(OSError):
            sizes[f"{each.relative_to(home).parts[0]}/ MB"] += each.stat().st_size / 1e6
    return {**sizes, "files": len(files)}


def _line(name: str, readings: Sequence[Reading], quarter: int) -> Figure:
    second, last = (
        float(np.mean([each.get(name, 0.0) for each in part]))
        for part in (readings[quarter : 2 * quarter], readings[-quarter:])
    )
    return {"what": name, "second_quarter": second, "last_quarter": last, "grown": last / second}
