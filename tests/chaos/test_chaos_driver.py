"""The process that drives a fit is killed, again and again: every fit ends with the same bits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

from clusters import Whole
from support import EXACT, doomed_command, store_own
from tally import few_and_many

from storage import Checkpoints

FIT = ("fit", "own", *EXACT, "--tol", "1e-12", "-q", "3", "--max-iter", "24")
KEPT = ("--plain", "--checkpoint", "0", "--quiet")
KILLS_OF_A_FIT = 5


@few_and_many(few=1, many=50)
def test_the_driver_is_killed_at_any_moment(tally, count):
    store_own(2_500, 20)
    rng = random.Random(count)
    row = tally("kill -9 the driver, also while it saves", count)
    subprocess.run([sys.executable, "-m", "flows.cli", *FIT, *KEPT, "--run", "whole"], check=True)
    whole = Whole("whole")
    fits = -(-count // KILLS_OF_A_FIT)
    for fit in range(fits):
        name, kills = f"cut-{fit}", min(KILLS_OF_A_FIT, count - fit * KILLS_OF_A_FIT)
        lost = [_killed(name, rng) for _ in range(kills)]
        done = subprocess.run(_driver(name, 0), check=False, capture_output=True, text=True)
        for each in lost:
            row.add(survived=each <= 1 and done.returncode == 0, wrong=whole.differs(name))
        assert not Checkpoints.of_run(name).numbers


def _driver(name: str, calls: int) -> list[str]:
    return doomed_command("checkpoint-", calls, *FIT, *KEPT, "--run", name)


def _killed(name: str, rng: random.Random) -> int:
    """Kill the driver of a run; return how many iterations that it had come to are lost."""
    saving = rng.random() < 0.5
    with subprocess.Popen(
        _driver(name, rng.randint(1, 60) if saving else 0), stdout=subprocess.PIPE, text=True
    ) as process:
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
