"""Fuzz every reader of files: each altered file is read, or refused by an error of this package.

    FUZZ_SECONDS=60 FUZZ_SEED=0 FINDINGS=findings pytest tests/fuzzing/altered_files.py -k settings

An input follows from the reader, the seed and its number: FUZZ_FIRST=NUMBER FUZZ_SECONDS=0 repeats
it alone. What the first input of a finding has altered is copied to FINDINGS, with the traceback. A
file there has the number of the input at hand, should the process crash.
"""

import linecache
import os
import resource
import shutil
import signal
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

import pytest

from flows.cli.app import _BUILTIN_ERRORS, _OWN_PACKAGES
from tests.fuzzing.edits import edit_file, edit_folder
from tests.fuzzing.readers import READERS, ROOT

# Seconds of processor time, and of a clock, for one read; bytes that a process may have.
_SECONDS, _CLOCK_SECONDS, _MEMORY = 10, 90, 6 * 2**30


class Hang(BaseException):
    """A read takes too long; no reader catches it."""


def _stop(number, _):
    raise Hang(signal.Signals(number).name)


@pytest.fixture(autouse=True)
def _limits(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("os.fsync", lambda _: None)  # nothing here has to survive a power cut
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    for each in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(each, _stop)


@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_altered_files_are_read_or_refused_in_our_words(name, tmp_path):
    home, keep = tmp_path / "home", Path(os.environ.get("FINDINGS", "findings")).absolute()
    number = first = int(os.environ.get("FUZZ_FIRST", "0"))
    seconds, seed = float(os.environ.get("FUZZ_SECONDS", "60")), os.environ.get("FUZZ_SEED", "0")
    make, reads = READERS[name]
    for folder in (home, keep):
        folder.mkdir(parents=True, exist_ok=True)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        units = {unit: tmp_path / f"copy-{k}" for k, unit in enumerate(make(home=home))}
        for unit, copy in units.items():
            _copy(unit, copy)
        found, until = {}, time.monotonic() + seconds
        while number == first or time.monotonic() < until:
            (keep / f"{name}.number").write_text(str(number))
            rng = Random(f"{name} {seed} {number}")
            unit = rng.choice(list(units))
            (edit_folder if unit.is_dir() else edit_file)(rng, unit)
            for place, text in map(judge, reads(unit)):
                if place and place not in found:
                    found[place] = number
                    folder = keep / f"{name}-{number}"
                    folder.mkdir(exist_ok=True)
                    _copy(unit, folder / unit.name)
                    (folder / f"finding-{len(found)}.txt").write_text(f"{place}\n{text}\n")
            _copy(units[unit], unit)
            number += 1
    assert not found, f"of {number - first} inputs"


def judge(read):
    """Return place and traceback of an error that no reader may raise; empty texts for none."""
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    signal.alarm(_CLOCK_SECONDS)
    try:
        result = read()
        (result if isinstance(result, str) else "").encode()  # as a server sends it
    except BaseException as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return _place(error), traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    return "", ""


def _place(error):
    """Return the type of an error, the last line of ours that it went through, and its origin.

    Return an empty text for an error whose message the command shows alone, and we have written.
    """
    if type(error).__module__.split(".")[0] in _OWN_PACKAGES:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{each.filename.removeprefix(f'{ROOT}/')}:{each.lineno}" for each in frames]
    own = [each for each in lines if each.startswith(_OWN_PACKAGES)]
    source = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).lstrip()
    is_ours = own[-1:] == lines[-1:] and source.startswith("raise ")
    if is_ours and type(error) in _BUILTIN_ERRORS:
        return ""
    return f"{type(error).__name__} at {' from '.join(dict.fromkeys((*own[-1:], lines[-1])))}"


def _copy(source, target):
    """Copy a file or a folder to another place, in place of what is there."""
    if source.is_file():
        shutil.copy(source, target)
    else:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
