"""Read altered files of one reader, and judge each read; runs in a process of its own."""

from __future__ import annotations

import faulthandler
import linecache
import os
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from unittest.mock import patch

from flows.cli.app import _BUILTIN_ERRORS, _OWN_PACKAGES
from tests.fuzzing.edits import edit_file, edit_folder
from tests.fuzzing.readers import READERS, ROOT

# Seconds of processor time, and of a clock, for one read; bytes that a process may have.
_SECONDS, _CLOCK_SECONDS, _MEMORY = 10, 90, 6 * 2**30


class Hang(BaseException):
    """A read takes too long; no reader catches it."""


def judge(read: Callable[[], object]) -> tuple[str, str]:
    """Return place and traceback of an error that no reader may raise; empty texts for none."""
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    signal.alarm(_CLOCK_SECONDS)
    try:
        result = read()
        (result if isinstance(result, str) else "").encode()  # as a server sends it
    except BaseException as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return ("", "") if _is_ours(error) else (_place(error), traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    return "", ""


def _is_ours(error: BaseException) -> bool:
    """Return whether the command shows the message of an error alone, and we have written it."""
    if type(error).__module__.split(".")[0] in _OWN_PACKAGES:
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = linecache.getline(last.filename, last.lineno or 0).lstrip().startswith("raise ")
    return type(error) in _BUILTIN_ERRORS and raised and bool(_own_lines([last]))


def _own_lines(frames: Iterable[traceback.FrameSummary]) -> list[str]:
    lines = [f"{each.filename.removeprefix(f'{ROOT}/')}:{each.lineno}" for each in frames]
    return [each for each in lines if each.startswith(_OWN_PACKAGES)]


def _place(error: BaseException) -> str:
    """Return the type of an error, the last line of ours that it went through, and its origin."""
    frames = traceback.extract_tb(error.__traceback__)
    origin = f"{frames[-1].filename.removeprefix(f'{ROOT}/')}:{frames[-1].lineno}"
    places = dict.fromkeys((*_own_lines(frames)[-1:], origin))
    return f"{type(error).__name__} at {' from '.join(places)}"


def work(
    name: str, seed: int, first: int, seconds: float, home: Path, keep: Path, answers: Connection
) -> None:
    """Read inputs for so long; answer the number of each, then each new place where it failed."""
    prepare_process(home, keep / f"{name}.log")
    make, reads = READERS[name]
    contents = {unit: _contents(unit) for unit in make(home=home)}
    known, number = {""}, first
    until = time.monotonic() + seconds
    while number == first or time.monotonic() < until:
        answers.send(number)
        rng = Random(f"{name} {seed} {number}")
        unit = rng.choice(list(contents))
        (edit_folder if unit.is_dir() else edit_file)(rng, unit)
        for place, text in map(judge, reads(unit)):
            if place not in known:
                known.add(place)
                keep_input(unit, keep / f"{name}-{number}", f"{place}\n{text}\n")
                answers.send(place)
        _restore(unit, contents[unit])
        number += 1


def prepare_process(home: Path, log: Path) -> None:
    """Let this process use another home, print to a file, and have limits."""
    home.mkdir()
    os.environ.update(ISM_DASK_HOME=str(home), PATH="")
    for descriptor, path in ((1, Path(os.devnull)), (2, log)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for each in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(each, _stop)
    patch("os.fsync", lambda _: None).start()  # nothing here has to survive a power cut


def _stop(number: int, _frame: object) -> None:
    raise Hang(signal.Signals(number).name)


def _contents(unit: Path) -> dict[Path, bytes]:
    files = [unit] if unit.is_file() else [each for each in unit.rglob("*") if each.is_file()]
    return {path: path.read_bytes() for path in files}


def _restore(unit: Path, contents: dict[Path, bytes]) -> None:
    if unit.is_dir():
        shutil.rmtree(unit)
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def keep_input(unit: Path, folder: Path, text: str) -> None:
    """Copy what was changed to a folder, and add a text to the findings there."""
    folder.mkdir(exist_ok=True)
    if unit.is_dir():
        shutil.copytree(unit, folder / unit.name, dirs_exist_ok=True)
    else:
        shutil.copy(unit, folder)
    with (folder / "findings.txt").open("a") as file:
        file.write(text)
