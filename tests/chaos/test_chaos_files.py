"""Files and tables are altered, cut or lost, and processes write at once: nothing stays unseen."""

import os
import random
import signal
import string
import subprocess
import sys
from itertools import count

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster
from stock import (
    READS,
    REQUEST,
    checkpoint,
    files_below,
    random_table,
    said_by,
    same,
    stock,
    write_table,
)
from support import DYING
from tally import few_and_many

from flows.builtin import ingest
from flows.runs.inventory import check_files
from storage import Checkpoints, TableError, datasets_folder, ingest_table, open_dataset
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
        messages = []
        is_before = same(checkpoints.find(REQUEST, messages.append), checkpoint(1))
        words = ("00000003", "The checkpoint before it is taken")
        named = [all(each in message for each in words) for message in messages]
        row.add(survived=is_before and named == [True], wrong=not is_before)
        path.write_bytes(content)
    assert same(checkpoints.find(REQUEST), checkpoint(2))


@few_and_many(few=20, many=1_000)
def test_a_file_is_altered_cut_or_deleted(tally, count):
    rng = random.Random(count)
    home = stock()
    row = tally("bit flipped, file cut or deleted: data, model, results, checkpoints", count)
    files = {path: content for path, content in files_below(home).items() if content}
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


def _damaged(rng, content, deletable):
    at = rng.randrange(len(content))
    flipped = bytes([content[at] ^ 1 << rng.randrange(8)])
    ways = [content[:at] + flipped + content[at + 1 :], content[:at], None]
    return rng.choice(ways if deletable else ways[:2])


# Waits to be let go with others.
_INGESTS_WINE = f"""{DYING}
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
        running = [_begun(_INGESTS_WINE, calls) for calls in (0, 0, rng.randint(1, 60))]
        for each in running:
            assert each.stdout.readline() == "ready\n"
        for each in running:
            print("go", file=each.stdin, flush=True)
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


def _begun(code, calls, *words):
    """Begin a program that ends itself at a call to the disk that names the data sets; 0: never."""
    command = [sys.executable, "-c", code, str(datasets_folder()), str(calls), *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


PARTS = 9


def _parts(folder, suffix, seed=0):
    paths = [folder / f"part-{number}.{suffix}" for number in range(PARTS)]
    for number, path in enumerate(paths):
        write_table(random_table(100, seed + number), path)
    return paths


def _error(source, name="own", **options):
    """Return the error with which an ingestion ends, empty if it ends well."""
    return said_by(lambda: ingest_table(source, name, label="y", force=True, **options))


@few_and_many(few=8, many=200)
def test_a_part_is_cut(tally, tmp_path, count):
    rng = random.Random(count)
    row = tally("a part of a table cut at a random byte", count)
    suffixes = ("parquet", "feather", "csv.gz")
    folders = {suffix: _parts(tmp_path / suffix, suffix) for suffix in suffixes}
    ingest_table(tmp_path / "parquet", "own", label="y")
    before = files_below(datasets_folder())
    for _ in range(count):
        suffix = rng.choice([*folders])
        path = rng.choice(folders[suffix])
        content = path.read_bytes()
        path.write_bytes(content[: rng.randrange(1, len(content))])
        said = _error(tmp_path / suffix)
        is_changed = files_below(datasets_folder()) != before
        row.add(survived=path.name in said, wrong=not said or is_changed)
        path.write_bytes(content)


@few_and_many(few=6, many=60)
def test_a_column_changes_its_type_in_a_part(tally, tmp_path, count):
    rng = random.Random(count)
    row = tally("a column changes its type in a part of a table", count)
    for number in range(count):
        suffix = rng.choice(["parquet", "feather", "csv"])
        folder = tmp_path / f"{number}"
        paths = _parts(folder, suffix)
        path, column = rng.choice(paths), rng.choice("abcd")
        frame = random_table(100, paths.index(path))
        # In a text file, late enough that the first rows do not show it.
        frame[column] = frame[column].astype(object)
        frame.loc[60 if suffix == "csv" else slice(None), column] = "many"
        write_table(frame, path)
        said = _error(folder)
        row.add(survived=repr(column) in said and path.name in said, wrong=not said)


@few_and_many(few=6, many=60)
def test_a_part_changes_while_it_is_read(tally, tmp_path, count):
    """All of it is refused, unless the change comes when everything was read."""
    rng = random.Random(count)
    row = tally("a part of a table changes while it is read", count)
    whole = {}
    for suffix in ("parquet", "csv"):
        _parts(tmp_path / suffix, suffix)
        whole[suffix] = ingest_table(tmp_path / suffix, suffix, label="y").data_hash
    for number in range(count):
        suffix, name = rng.choice([*whole]), f"changing-{number}"
        path, calls = rng.choice(_parts(tmp_path / name, suffix)), [rng.randrange(1, 12)]

        def change(_share, _text, path=path, calls=calls):
            calls[0] -= 1
            if calls[0] == 0:
                write_table(random_table(130, 99), path)

        said = _error(tmp_path / name, name, progress=change)
        assert calls[0] <= 0 or not said
        if said:
            named = "changed while it was read" in said or path.name in said
            row.add(survived=named, wrong=(datasets_folder() / name).exists())
        else:
            row.add(survived=True, wrong=open_dataset(name).data_hash != whole[suffix])


# Ingests a table in small batches, and ends itself at a share of the progress as well.
_INGESTS = f"""{DYING}
import storage.tables.sources as sources
from storage import ingest_table
source, share = sys.argv[1], float(sys.argv[2])
sources._BATCH_BYTES = 8192
def progress(done, _):
    if done >= share:
        end()
print(ingest_table(source, "own", label="y", force=True, progress=progress).data_hash)
"""


@pytest.mark.long
@few_and_many(few=2, many=20)
def test_an_ingestion_is_killed(tally, tmp_path, count):
    rng = random.Random(count)
    row = tally("kill -9 an ingestion of a table in the middle", count)
    _parts(tmp_path / "old", "parquet", seed=50)
    old = ingest_table(tmp_path / "old", "own", label="y").data_hash
    sources = {suffix: tmp_path / suffix for suffix in ("parquet", "csv")}
    expected = {}
    for suffix, folder in sources.items():
        _parts(folder, suffix)
        expected[suffix] = ingest_table(folder, f"whole-{suffix}", label="y").data_hash
    for number in range(count):
        suffix = rng.choice([*sources])
        share, calls = (rng.random(), 0) if number % 2 else (2.0, rng.randrange(1, 60))
        process = _begun(_INGESTS, calls, sources[suffix], share)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
        stored = open_dataset("own").data_hash
        data = ingest_table(sources[suffix], "own", label="y", force=True)
        again, rest = data.data_hash, [each.name for each in datasets_folder().iterdir()]
        row.add(
            survived=sorted(rest) == [".lock", "own", "whole-csv", "whole-parquet"],
            wrong=stored not in (old, expected[suffix]) or again != expected[suffix],
        )
        old = again


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


@few_and_many(few=2, many=20)
def test_a_worker_is_killed_during_an_ingestion(tally, tmp_path, count):
    """It dies while it scans a part, or while it writes one."""
    rng = random.Random(count)
    row = tally("kill -9 a worker in the middle of an ingestion", count)
    _parts(tmp_path / "parts", "parquet")
    expected = ingest_table(tmp_path / "parts", "whole", label="y").data_hash
    for _ in range(count):
        # A cluster for each, as the nanny of a worker that is killed while it starts gives up.
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            client.wait_for_workers(2, timeout=120)
            address, pid = rng.choice(sorted(client.run(os.getpid).items()))
            client.run(_die_at_batch, rng.randrange(1, 9), workers=[address])
            executor = client.get_executor(pure=False)
            data = ingest_table(tmp_path / "parts", "own", label="y", force=True, executor=executor)
            row.add(survived=not psutil.pid_exists(pid), wrong=data.data_hash != expected)
    rest = sorted(each.name for each in datasets_folder().iterdir())
    assert rest == [".lock", "own", "whole"]


@pytest.mark.long
@few_and_many(few=1, many=10)
def test_two_ingestions_of_one_name(tally, tmp_path, count):
    row = tally("two ingestions of tables under one name at once", count)
    for suffix, seed in (("parquet", 0), ("csv", 30)):
        _parts(tmp_path / suffix, suffix, seed)
    for _ in range(count):
        both = [_begun(_INGESTS, 0, tmp_path / suffix, 2.0) for suffix in ("parquet", "csv")]
        hashes = [each.communicate(timeout=120)[0].strip() for each in both]
        found = open_dataset("own")
        whole = len(found.X.read(0, len(found.X))) == 100 * PARTS
        row.add(survived=all(hashes) and whole, wrong=found.data_hash not in hashes)


NAMES = ("../x", "a/b", "/x", "..", "", "x" * 300, "\N{GRINNING FACE}", "a\nb", "a b", ".")


def test_hostile_names_of_data_sets(tally, tmp_path):
    row = tally("hostile names of tables", len(NAMES))
    write_table(random_table(50, 0), tmp_path / "own.csv")
    before = files_below(tmp_path)
    for name in NAMES:
        said = _error(tmp_path / "own.csv", name)
        row.add(survived="name" in said, wrong=files_below(tmp_path) != before)


def _columns(names):
    values = np.random.default_rng(0).normal(size=(60, len(names)))
    return pd.DataFrame(values, columns=names).assign(y=["no", "yes"] * 30)


# Columns beside one of numbers, and how gaps are read.
HOSTILE = {
    "l=n": ({"l=n": 1.0, "l": ["n", "s"] * 30}, "refuse"),
    "a is missing": ({"a is missing": 1.0, "a": [np.nan, *range(59)]}, "indicator"),
    "d": ({"d": pd.Timestamp("2026-01-01")}, "refuse"),
    "free": ({"free": [f"text {n}" for n in range(60)]}, "refuse"),
    "big": ({"big": np.inf}, "refuse"),
    "none": ({"none": np.nan}, "refuse"),
}


def test_hostile_columns(tally):
    row = tally("hostile columns of tables", len(HOSTILE))
    for name, (columns, missing) in HOSTILE.items():
        said = _error(_columns(["a"]).assign(**columns), missing=missing)
        row.add(survived=repr(name) in said, wrong=(datasets_folder() / "own").exists())


@pytest.mark.long
def test_ten_thousand_columns(tally, tmp_path):
    row = tally("a CSV with 10,000 columns", 1)
    names = [f"{letter}{n}" for letter in string.ascii_letters[:10] for n in range(1000)]
    frame = _columns(names)
    frame.to_csv(tmp_path / "wide.csv", index=False)
    data = ingest_table(tmp_path / "wide.csv", "wide", label="y")
    same = np.array_equal(data.X.read(0, 60), frame[names].to_numpy())
    row.add(survived=data.feature_names == tuple(names), wrong=not same)


def test_a_small_file_with_any_amount_of_text(tally, tmp_path):
    row = tally("a Parquet file of 1 MB that unpacks to 300 GB", 1)
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 300_000, pa.int32()), ["x" * 1_000_000])
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"bomb": text, "b": range(300_000)}), path, store_schema=False)
    assert path.stat().st_size < 5_000_000
    with pytest.raises(TableError, match=r"the column 'bomb' of .* GiB of text"):
        ingest_table(path, "bomb")
    row.add(survived=True, wrong=(datasets_folder() / "bomb").exists())
