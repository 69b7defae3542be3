"""Files are altered, cut and lost, and processes write at once: nothing of it stays unseen."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stock import READS, REQUEST, checkpoint, files_below, said_by, same, stock
from support import DYING
from tally import few_and_many

from flows.builtin import ingest
from flows.runs.inventory import check_files
from storage import Checkpoints, datasets_folder
from storage.partial_results import checkpoint_key

# One that is not there at all was never written, as far as anybody can tell.
KEPT_OR_NOT = ("lease.json",)


@few_and_many(few=3, many=100)
def test_the_newest_checkpoint_is_cut_at_a_random_byte(tally, count):
    rng = random.Random(count)
    row = tally("newest checkpoint cut at a random byte", count)
    checkpoints = Checkpoints.of_run("own")
    for seed in range(3):
        checkpoints.save(REQUEST, checkpoint(seed))
    files = files_below(checkpoints.results.path(checkpoint_key(3)))
    for _ in range(count):
        path, content = rng.choice([*files.items()])
        path.write_bytes(content[: rng.randrange(len(content))])
        messages: list[str] = []
        found = checkpoints.find(REQUEST, messages.append)
        row.add(
            survived=same(found, checkpoint(1))
            and len(messages) == 1
            and "00000003" in messages[0]
            and "The checkpoint before it is taken" in messages[0],
            wrong=not same(found, checkpoint(1)),
        )
        path.write_bytes(content)
    assert same(checkpoints.find(REQUEST), checkpoint(2))


@few_and_many(few=20, many=1_000)
def test_a_file_is_altered_cut_or_deleted(tally, count):
    rng = random.Random(count)
    home = stock()
    row = tally("bit flipped, file cut or deleted: data, model, results, checkpoints", count)
    files = files_below(home)
    for _ in range(count):
        path, content = rng.choice([*files.items()])
        name = path.relative_to(home).parts[1]
        damaged = _damaged(rng, content, path.name not in KEPT_OR_NOT)
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        found = [each.path for one in check_files([name]) for each in one.problems]
        messages = said_by(READS[name])
        row.add(survived=found == [path] and path.name in messages, wrong=not messages)
        path.write_bytes(content)
    assert not any(each.problems for each in check_files([]))
    assert not any(map(said_by, READS.values()))


def _damaged(rng: random.Random, content: bytes, deletable: bool) -> bytes | None:
    at = rng.randrange(len(content))
    flipped = bytes([content[at] ^ 1 << rng.randrange(8)])
    ways = [content[:at] + flipped + content[at + 1 :], content[:at], None]
    return rng.choice(ways if deletable else ways[:2])


# Waits to be let go with others.
INGESTS = f"""{DYING}
from flows.builtin import ingest
import sklearn.datasets
print("ready", flush=True)
sys.stdin.readline()
print(ingest("wine", force=True).data_hash)
"""


@pytest.mark.long
@few_and_many(few=1, many=10)
def test_ingests_at_once_and_one_is_killed(tally, count):
    rng = random.Random(count)
    row = tally("two ingests of one data set at once, a third killed in the middle", count)
    expected = ingest("wine").data_hash
    for _ in range(count):
        calls = [0, 0, rng.randint(1, 60)]
        running = [_ingesting(each) for each in calls]
        for each in running:
            assert each.stdout.readline() == "ready\n"
        for each in running:
            each.stdin.write("go\n")
            each.stdin.flush()
        ended = [each.communicate() for each in running]
        hashes = [out.strip() for out, _ in ended[:2]]
        codes = [each.returncode for each in running]
        again = ingest("wine").data_hash
        whole = not any(each.problems for each in check_files([]))
        left = sorted(path.name for path in datasets_folder().iterdir())
        row.add(
            survived=codes == [0, 0, -signal.SIGKILL] and whole and left == [".lock", "wine"],
            wrong={*hashes, again} != {expected},
        )


def _ingesting(calls: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", INGESTS, str(datasets_folder()), str(calls)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
