"""Measure the figures, each in a process of its own; write JSON and print a table.

Usage: python -m benchmarks [NAME ...]
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import FIGURES

_RESULTS = Path("bench-results")
_PACKAGES = ("ism-dask", "numpy", "scipy", "scikit-learn", "dask", "zarr")
_PLUMBING = {"must", "met", "peak_limit_gb", "peak_gb", "wall_seconds"}


def measured(name: str) -> dict[str, Any]:
    """Run one figure in a fresh process and return what it wrote, with its peak memory."""
    command = [sys.executable, "-m", "benchmarks", "--one", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one(name: str) -> None:
    """Run one figure here and print it as a line of JSON."""
    started = time.perf_counter()
    figure = FIGURES[name]()
    figure["wall_seconds"] = time.perf_counter() - started
    figure["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    limit = figure.get("peak_limit_gb")
    figure["met"] = figure["met"] and (limit is None or figure["peak_gb"] <= limit)
    print(json.dumps(figure))


def main(arguments: list[str]) -> int:
    """Measure the figures named, or all; return 1 if one was missed."""
    if arguments[:1] == ["--one"]:
        one(arguments[1])
        return 0
    unknown = set(arguments) - set(FIGURES)
    if unknown:
        print(f"no figure {sorted(unknown)}; there are {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    figures = {}
    for name in arguments or FIGURES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures[name] = measured(name)
    _RESULTS.mkdir(exist_ok=True)
    target = _RESULTS / "bench.json"
    target.write_text(json.dumps({"machine": _machine(), "figures": figures}, indent=1) + "\n")
    _print(figures)
    print(f"written to {target}")
    return 0 if all(figure["met"] for figure in figures.values()) else 1


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def _print(figures: dict[str, dict[str, Any]]) -> None:
    table = Table("figure", "measured", "peak GB", "must be", "met")
    for name, figure in figures.items():
        lines = [f"{key} {_short(value)}" for key, value in figure.items() if key not in _PLUMBING]
        met = "yes" if figure["met"] else "NO"
        table.add_row(name, "\n".join(lines), f"{figure['peak_gb']:.2f}", figure["must"], met)
    Console().print(table)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(_short(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
