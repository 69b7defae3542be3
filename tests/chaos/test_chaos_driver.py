"""The process that drives a fit is killed, again and again: every fit ends with the same bits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from support import EXACT, doomed_command, store_own
from tally import Tally, few_and_many

from storage import Checkpoints, load_model, run_folder

Begin = Callable[[str, int], Tally]
FIT = ("fit", "own", *EXACT, "--tol", "1e-12", "-q", "3", "--max-iter", "24")
KEPT = ("--plain", "--checkpoint", "0", "--quiet")
KILLS_OF_A_FIT = 5
# Sums that the pass saves in which the driver is killed: one for each of its shards of 250 rows.
SUMS = 32
# A process in which every pass is long. It says what sums with degrees of all rows it has saved:
# those of the passes over pairs of rows. Each line is one write, as two threads may write at once.
_IN_PASSES = """
import os, sys
import numpy as np
from ism_dask.rows import saved_sums, shards
from flows.runs.resumable import SavedResults
saved_sums._LONG, shards.ROWS_PER_SHARD = 0.0, 250
save = SavedResults.save
def said(self, key, total):
    save(self, key, total)
    if isinstance(total, tuple) and np.size(total[1]) == 250 * 32:
        os.write(1, f"saved {key.removeprefix('sum-').replace('-', ' ')}".encode() + bytes([10]))
SavedResults.save = said
from flows.cli.app import main
main()
"""


@few_and_many(few=1, many=50)
def test_the_driver_is_killed_at_any_moment(tally: Begin, count: int) -> None:
    store_own(2_500, 20)
    rng = random.Random(count)
    row = tally("kill -9 the driver, also while it saves", count)
    subprocess.run([sys.executable, "-m", "flows.cli", *FIT, *KEPT, "--run", "whole"], check=True)
    whole = load_model("whole")
    fits = -(-count // KILLS_OF_A_FIT)
    for fit in range(fits):
        name, kills = f"cut-{fit}", min(KILLS_OF_A_FIT, count - fit * KILLS_OF_A_FIT)
        lost = [_killed(name, rng) for _ in range(kills)]
        done = subprocess.run(_driver(name, 0), check=False, capture_output=True, text=True)
        model = load_model(name)
        wrong = not np.array_equal(model.components, whole.components) or [
            each["objective"] for each in model.history
        ] != [each["objective"] for each in whole.history]
        for each in lost:
            row.add(survived=each <= 1 and done.returncode == 0, wrong=wrong)
        assert not Checkpoints.of_run(name).numbers


def _driver(name: str, calls: int) -> list[str]:
    return doomed_command("checkpoint-", calls, *FIT, *KEPT, "--run", name)


def _killed(name: str, rng: random.Random) -> int:
    """Kill the driver of a run; return how many iterations that it had come to are lost."""
    saving = rng.random() < 0.5
    with subprocess.Popen(
        _driver(name, rng.randint(1, 60) if saving else 0), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        reached = 0
        lines = rng.randint(0, 2)
        for line in process.stdout:
            reached = int(line)
            lines -= 1
            if lines < 0 and not saving:
                time.sleep(rng.random() * 0.2)
                process.kill()
        assert process.wait() == -signal.SIGKILL
    newest = Checkpoints.of_run(name).find()
    saved_iterations = (
        0 if newest is None or newest.runs[-1] is None else len(newest.runs[-1].history)
    )
    return reached - saved_iterations


@few_and_many(few=2, many=10)
def test_the_driver_is_killed_in_its_first_pass(tally: Begin, count: int) -> None:
    """A pass goes on from the sums that are saved: at most what was under way is repeated."""
    store_own(250 * SUMS, 20)
    fit = ("fit", "own", *EXACT, "--sigma", "3", "-q", "3", "--max-iter", "2")
    command = [sys.executable, "-c", _IN_PASSES, *fit, *KEPT, "--run"]
    subprocess.run([*command, "whole"], check=True, stdout=subprocess.DEVNULL)
    whole, rng = load_model("whole"), random.Random(count)
    row = tally("kill -9 the driver in its first pass: the same bits, only parts under way", count)
    for each in range(count):
        known = _killed_after_sums([*command, f"cut-{each}"], rng.randrange(1, 28), rng.random())
        done = subprocess.run(
            [*command, f"cut-{each}"], check=False, capture_output=True, text=True
        )
        model, again = load_model(f"cut-{each}"), _saved_sums(done.stdout.splitlines())
        wrong = not np.array_equal(model.components, whole.components) or [
            one["objective"] for one in model.history
        ] != [one["objective"] for one in whole.history]
        # Either process has saved a sum of the pass that was cut, not both; each of its two
        # threads may have saved one and not have said so.
        cut_pass = min(known).split()[1]
        again = {line for line in again if line.split()[1] == cut_pass}
        resumed = not again & known and len(again | known) >= SUMS - 2
        row.add(survived=done.returncode == 0 and resumed, wrong=wrong)
        assert not (run_folder(f"cut-{each}") / "partial").exists()


def _killed_after_sums(command: list[str], sums: int, share: float) -> set[str]:
    """Kill a process that has saved some sums, after a share of the time that one takes it.

    Return the numbers of all sums that it has saved.
    """
    known: set[str] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            known |= _saved_sums([line])
            if len(known) == 1:
                began = time.monotonic()
            if len(known) == sums:
                time.sleep(share * (time.monotonic() - began) / sums)
                process.kill()
        assert process.wait() == -signal.SIGKILL
    return known


def _saved_sums(lines: list[str]) -> set[str]:
    return {line.strip() for line in lines if line.startswith("saved ")}
