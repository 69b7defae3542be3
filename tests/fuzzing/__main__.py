"""Fuzz every reader of files: each altered file is read, or refused by an error of this package.

    nice python -m tests.fuzzing [READER ...] --seconds 60 --seed 0 --keep FOLDER

Each reader runs in a process of its own, so that a crash is a finding, too. An input follows from
the reader, the seed and its number: `--first NUMBER --seconds 0` repeats it alone. What the first
input of a finding has altered is copied to FOLDER, with the traceback.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from flows.cli.app import _OWN_PACKAGES
from tests.fuzzing.judge import keep_input, work
from tests.fuzzing.readers import READERS, ROOT

# Seconds until a process is taken for dead, since code in C does not notice a signal.
_SILENCE = 240.0


def fuzz(
    name: str, seed: int, first: int, seconds: float, keep: Path
) -> tuple[int, dict[str, int]]:
    """Fuzz a reader; return the number of inputs, and that of the first for each place that failed.

    A process that has crashed, or that is silent, is followed by another, from the next input on.
    """
    found: dict[str, int] = {}
    number, spent, log = first - 1, 0.0, keep / f"{name}.log"
    while number < first or spent < seconds:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = multiprocessing.Pipe(duplex=False)
            home, begun = Path(folder, "home"), 0.0
            given = (name, seed, number + 1, seconds - spent, home, keep, theirs)
            process = multiprocessing.get_context("spawn").Process(target=work, args=given)
            process.start()
            theirs.close()
            with suppress(EOFError):
                while ours.poll(_SILENCE):
                    answer, begun = ours.recv(), begun or time.monotonic()
                    if isinstance(answer, int):
                        number = answer
                    else:
                        found.setdefault(answer, number)
            process.join(timeout=10)
            process.kill()
            process.join()
            if not begun:
                raise SystemExit(f"there is nothing for {name} to read: {log} says why")
            spent = spent + time.monotonic() - begun if process.exitcode else seconds
            if process.exitcode:
                found.setdefault(f"exit status {process.exitcode} {_crash_place(log)}", number)
                keep_input(home, keep / f"{name}-{number}", log.read_text(errors="replace"))
    return number + 1 - first, found


def _crash_place(log: Path) -> str:
    """Return the last line of ours that a process which has crashed went through."""
    text = log.read_text(errors="replace").rpartition("Fatal Python error")[2]
    packages = "|".join(_OWN_PACKAGES)
    place = re.search(rf'File "{re.escape(str(ROOT))}/((?:{packages})/.*?)", line (\d+)', text)
    return f"at {place[1]}:{place[2]}" if place else "without a word"


def main() -> int:
    """Fuzz the readers that the command names; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("readers", nargs="*", metavar="READER", help=", ".join(READERS))
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, required=True, help="folder for inputs that fail")
    given = parser.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    lines = []
    print(f"{'reader':14}{'inputs':>10}{'findings':>10}{'seconds':>10}")
    for name in given.readers or READERS:
        begun = time.monotonic()
        count, found = fuzz(name, given.seed, given.first, given.seconds, given.keep)
        print(f"{name:14}{count:10,}{len(found):10}{time.monotonic() - begun:10.0f}", flush=True)
        lines += [f"{name} {number}: {place}" for place, number in found.items()]
    print(*lines, sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("flows", "chaos")]
    sys.exit(main())
