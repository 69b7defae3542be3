"""Measure the figures, each in a process of its own; write JSON and print a table.

Usage: python -m benchmarks [--table] [NAME[:PART ...] ...]

Without arguments, it measures all figures that `make bench` measures. Each result is written into
docs/measured/bench.json at once, and at the end docs/measured/figures.md from that file; `--table`
alone writes the page, and measures nothing. A figure that takes parts measures only these, as in
`'recovery:KDR*'`, and keeps its earlier results for the others.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from benchmarks.measure import Figure, PeakMemory
from benchmarks.registry import all_figures, figures_of_make_bench
from benchmarks.results import PAGE, RECORD, Result, plain, print_figures, write_page

_PACKAGES = ("ism-dask", "numpy", "scipy", "scikit-learn", "dask", "zarr")


def measured(name: str, *parts: str) -> Figure:
    """Measure one figure in a fresh process and return its result, with its peak memory."""
    command = [sys.executable, "-m", "benchmarks", "--one", name, *parts]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        message = f"it ended with status {process.returncode}"
        return {"failed": message, "must": "(it failed)", "met": False, "peak_gb": float("nan")}
    return dict(json.loads(process.stdout.splitlines()[-1]))


def one(name: str, *parts: str) -> None:
    """Measure one figure in this process and print it as a line of JSON."""
    started = time.perf_counter()
    with PeakMemory() as peak:
        figure = all_figures()[name](*parts)
    figure["wall_seconds"] = time.perf_counter() - started
    figure["peak_gb"] = peak.together / 1e9
    limit = figure.get("peak_limit_gb")
    figure["met"] = figure["met"] and (limit is None or figure["peak_gb"] <= limit)
    print(json.dumps(plain(figure)))


def main(arguments: list[str]) -> int:
    """Measure the named figures, or all; return 1 if a measured figure misses its target."""
    if arguments[:1] == ["--one"]:
        one(*arguments[1:])
        return 0
    names = [argument for argument in arguments if argument != "--table"]
    known = all_figures()
    unknown = {name.split(":")[0] for name in names} - set(known)
    if unknown:
        print(f"no figure {sorted(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    status = 0
    if names or not arguments:
        status = _measure(names or figures_of_make_bench())
    write_page()
    print(f"written to {RECORD} and {PAGE}")
    return status


def _measure(names: list[str]) -> int:
    """Measure figures, write each result at once, and print them all at the end."""
    machine = _machine()
    figures = {}
    for each in names:
        name, *parts = each.split(":")
        print(f"measuring {each} ...", file=sys.stderr, flush=True)
        figures[name] = measured(name, *parts)
        if "failed" not in figures[name]:  # a failure does not overwrite an earlier result
            Result(name, machine, figures[name]).save()
    print_figures(figures)
    return 0 if all(figure["met"] for figure in figures.values()) else 1


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "processor": _processor(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    """Return the model of the processor, or its architecture if the system has no model name."""
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123
            names = (line for line in lines if line.startswith("model name"))
            return next(names, ":").split(":", 1)[1].strip() or platform.machine()
    except OSError:
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
