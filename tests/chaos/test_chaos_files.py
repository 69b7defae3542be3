"""Files and tables are altered, cut or lost, and processes write at once: nothing stays unseen."""

import os
import random
import signal
import subprocess
import sys
from functools import partial
from itertools import count

import psutil
import pytest
from distributed import Client, LocalCluster
from stock import (
    READS,
    REQUEST,
    bits,
    checkpoint,
    files_below,
    random_table,
    said_by,
    stock,
    write_table,
)
from support import DYING
from tally import few_and_many

from flows.runs.inventory import check_files
from storage import Checkpoints, datasets_folder, ingest_table, open_dataset
from storage.partial_results import checkpoint_key


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
        messages = []
        is_before = bits(checkpoints.find(REQUEST, messages.append)) == bits(checkpoint(1))
        words = ("00000003", "The checkpoint before it is taken")
        named = [all(each in message for each in words) for message in messages]
        row.add(survived=is_before and named == [True], wrong=not is_before)
        path.write_bytes(content)
    assert bits(checkpoints.find(REQUEST)) == bits(checkpoint(2))


@few_and_many(few=20, many=1_000)
def test_a_file_is_altered_cut_or_deleted(tally, count):
    rng = random.Random(count)
    home = stock()
    row = tally("bit flipped, file cut or deleted: data, model, results, checkpoints", count)
    files = {path: content for path, content in files_below(home).items() if content}
    for _ in range(count):
        path, content = rng.choice([*files.items()])
        name = path.relative_to(home).parts[1]
        at = rng.randrange(len(content))
        flipped = bytes([content[at] ^ 1 << rng.randrange(8)])
        ways = [content[:at] + flipped + content[at + 1 :], content[:at]]
        # A lease that is not there at all was never written, as far as anybody can tell.
        damaged = rng.choice(ways if path.name == "lease.json" else [*ways, None])
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        found = [each.path for one in check_files([name]) for each in one.problems]
        messages = said_by(READS[name])
        row.add(survived=found == [path] and path.name in messages, wrong=not messages)
        path.write_bytes(content)
    assert not any(each.problems for each in check_files([]))
    assert not any(map(said_by, READS.values()))


PARTS = 9


def _parts(folder, suffix, seed=0):
    paths = [folder / f"part-{number}.{suffix}" for number in range(PARTS)]
    for number, path in enumerate(paths):
        write_table(random_table(100, seed + number), path)
    return paths


def _cut(rng, path, number):
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(1, len(content))])
    return path.name


def _with_texts(rng, path, number):
    column = rng.choice("abcd")
    frame = random_table(100, number).astype({column: object})
    # In a text file, late enough that the first rows do not show it.
    frame.loc[60 if path.suffix == ".csv" else slice(None), column] = "many"
    write_table(frame, path)
    return repr(column)


@few_and_many(few=6, many=130)
@pytest.mark.parametrize(
    ("fault", "damage", "text"),
    [
        ("a part of a table cut at a random byte", _cut, "csv.gz"),
        ("a column changes its type in a part of a table", _with_texts, "csv"),
    ],
    ids=["cut", "texts"],
)
def test_a_part_is_damaged(tally, tmp_path, count, fault, damage, text):
    rng = random.Random(count)
    row = tally(fault, count)
    folders = {suffix: _parts(tmp_path / suffix, suffix) for suffix in ("parquet", "feather", text)}
    ingest_table(tmp_path / "parquet", "own", label="y")
    before = files_below(datasets_folder())
    for _ in range(count):
        suffix, number = rng.choice([*folders]), rng.randrange(PARTS)
        path = folders[suffix][number]
        content = path.read_bytes()
        word = damage(rng, path, number)
        said = said_by(partial(ingest_table, path.parent, "own", label="y", force=True))
        is_changed = files_below(datasets_folder()) != before
        row.add(survived=path.name in said and word in said, wrong=not said or is_changed)
        path.write_bytes(content)


@few_and_many(few=6, many=60)
def test_a_part_changes_while_it_is_read(tally, tmp_path, count):
    """All of it is refused, unless the change comes when everything was read."""
    rng = random.Random(count)
    row = tally("a part of a table changes while it is read", count)
    for number in range(count):
        suffix, name = rng.choice(["parquet", "csv"]), f"changing-{number}"
        path, calls = rng.choice(_parts(tmp_path / name, suffix)), [rng.randrange(1, 12)]
        whole = ingest_table(tmp_path / name, "whole", label="y", force=True).data_hash

        def change(_share, _text, path=path, calls=calls):
            calls[0] -= 1
            if calls[0] == 0:
                write_table(random_table(130, 99), path)

        said = said_by(partial(ingest_table, tmp_path / name, label="y", progress=change))
        assert calls[0] <= 0 or not said
        if said:
            named = "changed while it was read" in said or path.name in said
            row.add(survived=named, wrong=(datasets_folder() / name).exists())
        else:
            row.add(survived=True, wrong=open_dataset(name).data_hash != whole)


# Waits to be let go, ingests a table in small batches, and ends itself at a share of it as well.
_INGESTS = f"""{DYING}
import storage.tables.sources as sources
from storage import ingest_table
source, share = sys.argv[1], float(sys.argv[2])
sources._BATCH_BYTES = 8192
print("ready", flush=True)
sys.stdin.readline()
def progress(done, _):
    if done >= share:
        end()
print(ingest_table(source, "own", label="y", force=True, progress=progress).data_hash)
"""


def _begun(source, calls=0, share=2.0):
    """Begin what ends itself at a call to the disk that names the data sets, or at a share."""
    given = (datasets_folder(), calls, source, share)
    command, pipe = [sys.executable, "-c", _INGESTS, *map(str, given)], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def _ended(*running):
    """Let ingestions go at once; return what they have printed."""
    assert [each.stdout.readline() for each in running] == ["ready\n"] * len(running)
    for each in running:
        print("go", file=each.stdin, flush=True)
    return [each.communicate(timeout=120)[0].strip() for each in running]


def _left():
    return sorted(path.name for path in datasets_folder().iterdir())


@pytest.mark.long
@few_and_many(few=2, many=20)
def test_ingestions_at_once_and_one_is_killed(tally, tmp_path, count):
    """It dies at a call to the disk or at a share of its work; the next one does all of that."""
    rng = random.Random(count)
    row = tally("two ingestions of one name at once, a third killed in the middle", count)
    known = {}
    for seed, suffix in enumerate(("parquet", "csv", "feather")):
        _parts(tmp_path / suffix, suffix, seed * 50)
        data = ingest_table(tmp_path / suffix, "own", label="y", force=True)
        known[tmp_path / suffix] = data.data_hash
    *both, third = known
    for number in range(count):
        by_calls, by_share = {"calls": rng.randrange(1, 60)}, {"share": rng.random()}
        running = [*map(_begun, both), _begun(third, **(by_share if number % 2 else by_calls))]
        hashes = _ended(*running)
        codes = [each.returncode for each in running]
        found = open_dataset("own")
        whole = len(found.X.read(0, len(found.X))) == 100 * PARTS
        stored = found.data_hash
        again = ingest_table(third, "own", label="y", force=True).data_hash
        row.add(
            survived=codes == [0, 0, -signal.SIGKILL] and whole and _left() == [".lock", "own"],
            wrong=not {*hashes[:2], stored} <= {*known.values()} or again != known[third],
        )


def _die_at_batch(number):
    """Kill this worker when it has read a number of files."""
    from storage.tables.sources import Part

    batches, calls = Part.batches, count(1)

    def cut_off(self, columns):
        for batch in batches(self, columns):
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    Part.batches = cut_off


@pytest.mark.long
@few_and_many(few=2, many=20)
def test_a_worker_is_killed_during_an_ingestion(tally, tmp_path, count):
    """It dies while it scans a part, or while it writes one."""
    rng = random.Random(count)
    row = tally("kill -9 a worker in the middle of an ingestion", count)
    _parts(tmp_path / "parts", "parquet")
    expected = ingest_table(tmp_path / "parts", "whole", label="y").data_hash
    for _ in range(count):
        # A cluster for each, as the nanny of a worker that is killed while it starts gives up.
        workers = {"n_workers": 2, "threads_per_worker": 1}
        place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        with LocalCluster(**workers, **place) as cluster, Client(cluster) as client:
            client.wait_for_workers(2, timeout=120)
            address, pid = rng.choice(sorted(client.run(os.getpid).items()))
            client.run(_die_at_batch, rng.randrange(1, 9), workers=[address])
            executor = client.get_executor(pure=False)
            data = ingest_table(tmp_path / "parts", "own", label="y", force=True, executor=executor)
            row.add(survived=not psutil.pid_exists(pid), wrong=data.data_hash != expected)
    assert _left() == [".lock", "own", "whole"]
