"""What all processes of a run of tests share: the first to need it starts it, the last ends it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from storage.atomic import lock_file

_SUFFIX = ".shared"


def folder_of_the_run(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all processes of this run of tests have in common."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@contextmanager
def shared_process(
    folder: Path, name: str, start: Callable[[], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield what `start` returned, with the "pid" of the process that it started.

    Parameters
    ----------
    folder : Path
        That of the run of tests.
    name : str
    start : callable
        The first user calls it; the last one kills the process.
    """
    file = folder / f"{name}{_SUFFIX}"
    with lock_file(folder / f"{name}.lock"):
        known = json.loads(file.read_text()) if file.exists() else {"users": 0, **start()}
        known["users"] += 1
        file.write_text(json.dumps(known))
    try:
        yield known
    finally:
        with lock_file(folder / f"{name}.lock"):
            known = json.loads(file.read_text())
            known["users"] -= 1
            file.write_text(json.dumps(known))
            if not known["users"]:
                _end(file)


def end_what_is_left(folder: Path) -> None:
    """End what a process of the tests has not ended because it crashed."""
    for file in folder.glob(f"*{_SUFFIX}"):
        _end(file)


def made_once(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first process that needs it makes."""
    made, whole = folder / name, folder / f"{name}.whole"
    with lock_file(folder / f"{name}.lock"):
        if not whole.exists():
            made.mkdir()
            make(made)
            whole.touch()
    return made


def kill_family(pid: int) -> None:
    """Kill a process, and those that it has started."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for each in [*parent.children(recursive=True), parent]:
            each.kill()


def _end(file: Path) -> None:
    kill_family(json.loads(file.read_text())["pid"])
    file.unlink()
