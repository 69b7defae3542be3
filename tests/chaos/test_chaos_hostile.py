"""Files and names made to do harm: each is refused in our own words, and no code in any is run."""

import io
import json
import shutil
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stock import READS, checkpoint, said_by, stock
from support import MARKER, PICKLED, Payload

from flows.cli.compute import resume
from flows.cli.output import Output
from flows.reports.pages import write_report
from flows.runs.inventory import check_files
from flows.runs.transform import transform_rows
from flows.settings.base import TransformSettings
from storage import Checkpoints, PartialResults, StorageError, TableError, ingest_table, open_run
from storage.manifest import MANIFEST, write_manifest
from storage.records import to_sealed_json


def later(use):
    """Return a function that returns a call of `use`, with its arguments, for later."""
    return lambda *given, **named: partial(use, *given, **named)


OBJECTS = np.array([[Payload(), 1.0, 2.0]], dtype=object)


def saved(array, save=np.save):
    content = io.BytesIO()
    save(content, array)
    return content.getvalue()


def npy(header):
    """Return a .npy file with a header of our own."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(24)


def shaped(shape):
    return npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}")


TABLES = {
    "npy: pickled objects": saved(OBJECTS),
    "npy: a bare pickle": PICKLED,
    "npy: an archive of pickled objects": saved(OBJECTS, np.savez),
    "npy: a header that claims 1e15 rows": shaped((10**15, 3)),
    "npy: a negative shape": shaped((-1, 3)),
    "npy: a shape that overflows": shaped((2**62, 2**62)),
    "npy: a header that is code": npy(f"__import__('os').mkdir({MARKER!r})"),
    "npy: a header nested without end": npy("(" * 110),
    "npy: complex numbers": saved(np.ones((1, 3), complex)),
    "npy: an array of infinities": saved(np.full((1, 3), np.inf)),
    "csv: bytes that are no text": b"\xff\xfe\x00\x80",
    "csv: a cell without end": b"1,2,3\n" + b"9" * 200_000 + b",2,3\n",
    "csv: a quote without end": b'a,b,c\n"1,2,3\n' * 3,
    "csv: a formula": b"a,b,c\n=cmd|' /C calc'!A0,1,2\n",
    "pkl: a pickle": PICKLED,
}


@later
def _transformed(file, content):
    Path(file).write_bytes(content)
    try:
        transform_rows("fitted", TransformSettings(source=file, out=Path("out.csv")))
    finally:
        assert not Path("out.csv").exists()


def _ingested_bomb():
    """Store a Parquet file of 1 MB that unpacks to 300 GB."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 300_000, pa.int32()), ["x" * 1_000_000])
    table = pa.table({"bomb": text, "b": range(300_000)})
    pq.write_table(table, "bomb.parquet", store_schema=False)
    assert Path("bomb.parquet").stat().st_size < 5_000_000
    with pytest.raises(TableError, match=r"the column 'bomb' of .* GiB of text") as refused:
        ingest_table("bomb.parquet", "bomb")
    assert not Path("home/datasets/bomb").exists()
    raise refused.value


DEEP = "[" * 50_000


@later
def _altered(file, *keys, **changes):
    """Read what has a file whose JSON has other entries, below some keys, and all digests right."""
    path = Path("home", file)
    known = json.loads(path.read_text())
    entries = known
    for key in keys:
        entries = entries[key]
    entries.update(changes)
    sealed = known.pop("digest", None) is not None
    _written(file, to_sealed_json(known) if sealed else json.dumps(known))()


@later
def _written(file, text):
    """Read what has a file with another text, and the digests of those that list it right."""
    path = Path("home", file)
    path.write_text(text)
    if path.name not in (MANIFEST, "lease.json"):
        root = next(each for each in path.parents if (each / MANIFEST).exists())
        _resealed(root, json.loads((root / MANIFEST).read_text())["data_hash"])
    READS[path.parts[2]]()


def _resealed(root, data_hash):
    (root / MANIFEST).unlink()
    write_manifest(root, data_hash)


SMALL, MODEL = "datasets/small/", "runs/fitted/result/record.json"
UNDER_WAY = "runs/under-way/"
LEASE = f"{UNDER_WAY}lease.json"
_metadata = partial(_altered, f"{SMALL}X/zarr.json")
_model = partial(_altered, MODEL)
_checkpoint = partial(_altered, f"{UNDER_WAY}partial/checkpoint-00000001/record.json")
EMPTY = ("<f8", (0,))


def _grid(*shape):
    return {"name": "regular", "configuration": {"chunk_shape": shape}}


def _layout(kind, *shape):
    return _model("arrays", components=(kind, shape))


def _listed(name):
    """Return what reads a data set whose manifest lists that file as well."""
    return _altered(f"{SMALL}{MANIFEST}", "files", **{name: {"bytes": 1, "sha256": "0" * 64}})


def _values_of_another():
    _resealed(Path("home", SMALL), "0" * 64)
    (checked,) = check_files(["small"])
    if checked.problems:
        raise StorageError(str(checked.problems[0]))


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
STORES = {
    "zarr: a codec that unpickles": _metadata(codecs=[{"name": "numcodecs.pickle"}]),
    "zarr: a codec of nobody": _metadata(codecs=[BYTES, {"name": "os.system"}]),
    "zarr: a codec of others": _metadata(codecs=[BYTES, GZIP]),
    "zarr: objects": _metadata(data_type="object"),
    "zarr: 1e15 rows": _metadata(shape=[10**15, 3]),
    "zarr: 1e15 rows in three": _metadata(shape=[3 * 10**15, 3], chunk_grid=_grid(10**15, 3)),
    "zarr: 2**63 rows in three": _metadata(
        shape=[3 * 2**62, 3], chunk_grid=_grid(2**62, 3), data_type="bool"
    ),
    "zarr: no JSON": _written(f"{SMALL}X/zarr.json", DEEP),
    "manifest: a way up": _listed("../../../etc/passwd"),
    "manifest: an absolute path": _listed("/etc/passwd"),
    "manifest: a name with a zero": _listed("X/c/\0"),
    "manifest: nested without end": _written(f"{SMALL}{MANIFEST}", DEEP),
    "manifest: of other values": _values_of_another,
    "model: a pickle for a record": _written(MODEL, PICKLED.hex()),
    "model: no arrays": _model(arrays={}),
    "model: arrays of objects": _layout("O", 2, 2),
    "model: arrays of no type": _layout("os.system", 2, 2),
    "model: arrays of code": _layout({"names": ["a"], "formats": ["O"]}, 1),
    "model: 1e15 rows": _layout("<f8", 10**15, 3),
    "model: fewer bytes": _layout("<f8", 1, 1),
}


@later
def _resumed(**changes):
    """Go on with a run whose lease has other settings, and the digest right."""
    _altered(LEASE, "settings", **changes)()
    resume("under-way", plain=True, output=Output(quiet=True))


@later
def _linked(link, use):
    """Use a folder that is a link to one outside the home."""
    outside, place = Path("outside"), Path("home", link)
    outside.mkdir()
    place.rename("moved")
    place.symlink_to(outside.resolve())
    use()


RUNS = {
    "name: a run anywhere": lambda: open_run("/etc"),
    "name: a table above": lambda: ingest_table([[1.0]], "../x"),
    "name: a report above": lambda: write_report("../../x"),
    "name: checkpoints above": lambda: Checkpoints.of_run("../x"),
    "name: a fold above": lambda: PartialResults.of_run("own").save("../x", {}, {}),
    "name: one to be checked above": lambda: check_files(["../x"]),
    "checkpoint: another record": _checkpoint("record", "value", runs=[{"value": "converged"}]),
    "checkpoint: an array of nobody": _checkpoint("arrays", **{"value.runs.9.W": EMPTY}),
    "checkpoint: an array within a number": _checkpoint("arrays", **{"value.runs.0.W.x": EMPTY}),
    "lease: a pickle": _written(LEASE, PICKLED.hex()),
    "lease: a setting that is a list": _resumed(label=[1]),
    "lease: a setting of nobody": _resumed(preload="evil.py"),
    "lease: a run above": _resumed(dataset="../x"),
    "fold: a pickle": _written(f"{UNDER_WAY}partial/fold-1/{MANIFEST}", PICKLED.hex()),
    "link: a run outside": _linked("runs/fitted", READS["fitted"]),
    "link: a data set outside": _linked("datasets/small", READS["small"]),
    "link: partial results outside": _linked(
        "runs/under-way/partial", lambda: Checkpoints.of_run("under-way").save({}, checkpoint(0))
    ),
}


HOSTILE = {
    "rows": {
        **{name: _transformed(f"a.{name[:3]}", each) for name, each in TABLES.items()},
        "parquet: any amount of text": _ingested_bomb,
    },
    "stores and manifests": STORES,
    "names, runs, leases and links": RUNS,
}


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(tmp_path_factory.mktemp("stocked") / "home"))
        return stock()


@pytest.mark.parametrize("group", HOSTILE)
def test_what_is_hostile_is_refused(tally, tmp_path, monkeypatch, stocked, group):
    row = tally(f"hostile {group}", len(HOSTILE[group]))
    accepted = []
    for number, (name, use) in enumerate(HOSTILE[group].items()):
        folder = tmp_path / str(number)
        shutil.copytree(stocked, folder / "home")
        monkeypatch.chdir(folder)
        monkeypatch.setenv("ISM_DASK_HOME", str(folder / "home"))
        message = said_by(use)
        made = [folder / one for one in (MARKER, "home/runs/x", "x")]
        harm = any(folder.glob("outside/*")) or any(each.exists() for each in made)
        row.add(survived=len(message) > 20, wrong=harm or not message)
        accepted += [] if message and not harm else [name]
    assert not accepted
