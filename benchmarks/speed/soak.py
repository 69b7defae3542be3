"""Hours of `ism-dask up` with a refresh each minute, and faults: memory, file handles, disk."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pandas as pd
import psutil

from benchmarks.measure import Figure, say
from benchmarks.registry import long_figure
from flows.results.refresh import PUBLISHED
from flows.runs.published import History
from flows.services.leases import find_lease
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
# Rows of the table at first, and how many more it has each minute.
_ROWS, _MORE_ROWS = 2_000, 10
# Minutes from one killed refresh to the next, and the size of the disk that is filled once.
_KILL_EVERY, _DISK = 5, "2g"
# A mean that grows by no more than this factor is flat.
_MOST_GROWN = 1.05

Reading = dict[str, float]
Fault = Callable[[Path], None]


@long_figure
def soak(minutes: str = "150") -> Figure:
    """Refresh a table that grows each minute, and watch the services and the home.

    Each fifth minute the process of the refresh is killed, and half way the disk of the home is
    full for a minute (root may mount it). A reading is taken each minute, of the processes that
    live through it. The second quarter of the readings is compared with the last. The database of
    the server keeps each flow run for the days of its retention, and so grows with their number.
    """
    faults = [_fault_of(number, int(minutes)) for number in range(int(minutes))]
    with _small_disk() as folder, patch.dict(os.environ, ISM_DASK_HOME=f"{folder}/home"):
        for name in ("PREFECT_API_URL", "PREFECT_HOME"):
            os.environ.pop(name, None)
        with _up(folder):
            readings = [_next_reading(folder, *each) for each in enumerate(faults)]
        records = History("sales").records
    quarter = max(len(readings) // 4, 1)
    table = [_line(name, readings, quarter) for name in readings[-1]]
    grown = {line["what"]: line["grown"] for line in table}
    may_grow = _MOST_GROWN * grown.pop("rows")
    flat = [each for name, each in grown.items() if "handles" in name or "memory" in name]
    folders = [each for name, each in grown.items() if "folder" in name and "prefect" not in name]
    states: Counter[str] = Counter()
    for each in records:
        states[each.state] += each.times
    return {
        "table": table,
        "minutes": len(readings),
        "killed": faults.count(_kill),
        "full_disks": faults.count(_fill_disk),
        "refreshes": ", ".join(f"{number} {state}" for state, number in states.items()),
        "last_refresh": records[-1].state,
        "must": (
            f"the last refresh is published; no process has grown beyond {_MOST_GROWN}, and no "
            f"folder but the server's beyond {_MOST_GROWN} times the rows"
        ),
        "met": records[-1].state == PUBLISHED
        and max(flat) <= _MOST_GROWN
        and max(folders) <= may_grow,
    }


@contextmanager
def _small_disk() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", folder]
        subprocess.run(mount, check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


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


def _change_table(folder: Path, minute: int) -> None:
    rng = np.random.default_rng(minute)
    frame = pd.DataFrame(rng.normal(size=(_rows(minute), 5)), columns=list("vwxyz"))
    frame["churned"] = np.where(frame["v"] * frame["w"] > 0, "yes", "no")
    frame.to_csv(folder / "next.csv", index=False)
    (folder / "next.csv").replace(folder / "sales.csv")


def _rows(minute: int) -> int:
    return _ROWS + _MORE_ROWS * minute


def _fault_of(number: int, minutes: int) -> Fault:
    """Return what happens in a minute."""
    if number == minutes // 2:
        return _fill_disk
    return _kill if number % _KILL_EVERY == _KILL_EVERY - 1 else _leave


def _leave(folder: Path) -> None:
    """Let the refresh of the minute do its work."""


def _kill(_folder: Path) -> None:
    """Kill the process of the refresh as soon as it computes."""
    until = time.monotonic() + 45
    while time.monotonic() < until:
        lease = find_lease("sales")
        if lease and lease.held and lease.process:
            lease.process.kill()
            return
        time.sleep(0.1)


def _fill_disk(folder: Path) -> None:
    """Fill the disk of the home until the minute ends."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    time.sleep(_seconds_left())
    filler.unlink()


def _seconds_left() -> float:
    """Return the seconds until the last five of a minute, when the table changes."""
    return (55 - time.time()) % 60


def _next_reading(folder: Path, number: int, fault: Fault) -> Reading:
    """Let a fault happen, wait for the end of the minute, read, and change the table."""
    time.sleep(60 - time.time() % 60)
    fault(folder)
    time.sleep(_seconds_left())
    home, counts = folder / "home", {"rows": float(_rows(number))}
    reading = {**counts, "flow runs": _flow_runs(home), **_services(), **_folders(home)}
    what = {name: round(each, 2) for name, each in reading.items()}
    say(f"minute {number} ({fault.__name__}): {json.dumps(what)}")
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
        reading[f"memory of {record.name}, MB"] = memory / 1e6
        reading[f"handles of {record.name}"] = handles
    return reading


def _folders(home: Path) -> Reading:
    """Return the size of each folder of the home, and the number of files in all."""
    files = [each for each in home.rglob("*") if each.is_file()]
    sizes: dict[str, float] = defaultdict(float)
    for each in files:
        with suppress(OSError):
            sizes[f"folder {each.relative_to(home).parts[0]}, MB"] += each.stat().st_size / 1e6
    return {**sizes, "files": len(files)}


def _flow_runs(home: Path) -> float:
    """Return how many flow runs the database of the server has."""
    database = next(home.rglob("prefect.db"))
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return float(connection.execute("select count(*) from flow_run").fetchone()[0])


def _line(name: str, readings: Sequence[Reading], quarter: int) -> Figure:
    second, last = (
        float(np.mean([each.get(name, 0.0) for each in part]))
        for part in (readings[quarter : 2 * quarter], readings[-quarter:])
    )
    return {"what": name, "second_quarter": second, "last_quarter": last, "grown": last / second}
