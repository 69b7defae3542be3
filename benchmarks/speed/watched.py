"""Overhead beside the mathematics: Prefect with its reports, and the start-up of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.measure import Figure, alternating, median_ratio, median_seconds
from benchmarks.registry import figure

_FITS, _COMMANDS, _STARTS = 9, 5, 9
# A fixed width: choosing one would lengthen the fits, of which the overhead is a share.
_PLAIN = {"sigma": "median"}
_SETTINGS = {"dataset": "mnist", "split": "train", "n_components": 10, "force": True, **_PLAIN}
_OPTIONS = tuple(word for name, value in _PLAIN.items() for word in (f"--{name}", value))
_COMMAND = ("fit", "mnist", "--split", "train", "-q", "10", "--force", "--quiet", *_OPTIONS)


@figure
def overhead() -> Figure:
    """MNIST, 60,000 training images, q = 10, gaussian: fitted and saved with and without Prefect.

    The server runs before the clock starts. `command` is the whole `ism-dask fit`, which also
    imports Prefect. Ratios are medians over those of neighbouring runs.
    """
    with _prefect_server():
        inside = alternating(_functions(), _FITS)
        commands = alternating(_commands(), _COMMANDS)
    seconds = {name: median_seconds(runs) for name, runs in {**inside, **commands}.items()}
    ratio = median_ratio(inside["under_prefect"], inside["plain"])
    return {
        **{f"{name}_seconds": value for name, value in seconds.items()},
        "ratio": ratio,
        "command_ratio": median_ratio(commands["command"], commands["plain_command"]),
        "must": "at most 1.05 times as long under Prefect",
        "met": ratio <= 1.05,
    }


@figure
def startup() -> Figure:
    """Time of the commands `ism-dask --help` and `crossval wine` without Prefect.

    For the first, elapsed seconds count; for the second, processor seconds of all cores, with ten
    folds and all imports. Wine is ingested before.
    """
    with TemporaryDirectory() as folder, patch.dict(os.environ, ISM_DASK_HOME=folder):
        _processor_seconds("crossval", "wine", "--plain", "--quiet")
        calls = {
            "help": partial(_processor_seconds, "--help"),
            "crossval_wine": partial(_processor_seconds, "crossval", "wine", "--plain", "--quiet"),
        }
        runs = alternating(calls, _STARTS)
    seconds = median_seconds(runs["help"])
    processor = float(np.median([run.value for run in runs["crossval_wine"]]))
    return {
        "help_seconds": seconds,
        "crossval_wine_processor_seconds": processor,
        "must": "help 0.5 s, crossval wine --plain 3 s of the processor",
        "met": seconds <= 0.5 and processor <= 3.0,
    }


def _processor_seconds(*command: str) -> float:
    """Run a command in a process of its own; return its processor seconds over all cores."""
    before = os.times()
    full_command = [sys.executable, "-m", "flows.cli", *command]
    subprocess.run(full_command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system


def _functions() -> dict[str, Callable[[], Any]]:
    # Imported here because Prefect reads its environment when it is imported.
    from flows.run_flows import fit  # noqa: PLC0415
    from flows.runs.fit import run_fit  # noqa: PLC0415
    from flows.settings.runs import FitSettings  # noqa: PLC0415
    from flows.tracking.flow_run import run_flow  # noqa: PLC0415

    settings = FitSettings(**_SETTINGS)
    run_fit(settings)  # the first call ingests the data set
    # The first call imports all of Prefect.
    run_flow(fit, replace(settings, dataset="wine", split=None, n_components=2))
    return {
        "plain": partial(run_fit, settings),
        "under_prefect": partial(run_flow, fit, settings),
    }


def _commands() -> dict[str, Callable[[], Any]]:
    command = (sys.executable, "-m", "flows.cli", *_COMMAND)
    run = partial(subprocess.run, check=True)
    return {"plain_command": partial(run, (*command, "--plain")), "command": partial(run, command)}


@contextmanager
def _prefect_server() -> Iterator[None]:
    """Run a Prefect server with a home folder of its own in the block."""
    from flows.services.service import free_port, start_services  # noqa: PLC0415
    from flows.supervisor import service, stop_all  # noqa: PLC0415
    from flows.tracking.server import find_server, prepare_environment  # noqa: PLC0415

    with TemporaryDirectory() as folder, patch.dict(os.environ, {"ISM_DASK_HOME": folder}):
        os.environ.pop("PREFECT_API_URL", None)
        prepare_environment(debug=False)
        try:
            start_services([service("prefect-server", port=free_port(4300))])
            find_server()
            yield
        finally:
            stop_all()
