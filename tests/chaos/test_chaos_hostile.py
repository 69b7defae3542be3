"""Files and names made to do harm: each is refused in our own words, and no code in any is run."""

import io
import json
import shutil
import struct
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from stock import READS, checkpoint, lease, read_data, said_by, stock
from support import MARKER, PICKLED, Payload

from flows.cli.compute import resume
from flows.cli.output import Output
from flows.reports.html import write_report
from flows.runs.inventory import check_files
from flows.runs.transform import transform_rows
from flows.settings.base import TransformSettings
from flows.settings.runs import FitSettings
from storage import (
    Checkpoints,
    PartialResults,
    StorageError,
    dataset_path,
    load_model,
    open_dataset,
    open_run,
    run_folder,
    safe_name,
)
from storage.manifest import MANIFEST, write_manifest
from storage.partial_results import checkpoint_key
from storage.records import dumps, loads, to_sealed_json
from storage.saved_arrays import RECORD


def later(use):
    """Return a function that returns a call of `use`, with its arguments, for later."""
    return lambda *given, **named: partial(use, *given, **named)


OBJECTS = np.array([[Payload(), 1.0, 2.0]], dtype=object)


def saved(array, save=np.save):
    content = io.BytesIO()
    save(content, array)
    return content.getvalue()


def npy(header, body=bytes(24)):
    """Return a .npy file with a header of our own."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def shaped(shape, descr="<f8"):
    return npy(f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}")


MATRICES = {
    "pickled objects": saved(OBJECTS),
    "a bare pickle": PICKLED,
    "an archive of pickled objects": saved(OBJECTS, np.savez),
    "a header that claims 1e15 rows": shaped((10**15, 3)),
    "a header that claims 1e10 rows": shaped((10**10, 3)),
    "a negative shape": shaped((-1, 3)),
    "a shape that overflows": shaped((2**62, 2**62)),
    "a header that is code": npy(f"__import__('os').mkdir({MARKER!r})"),
    "a header nested without end": npy("(" * 110),
    "a field of objects": shaped((1, 3), "|O"),
    "complex numbers": saved(np.ones((1, 3), complex)),
    "records": saved(np.zeros((1, 3), [("a", "f8")])),
    "times": saved(np.zeros((1, 3), "M8[s]")),
    "numbers cut short": saved(np.ones((4, 3)))[:-1],
    "an array of infinities": saved(np.full((1, 3), np.inf)),
}


TABLES = {
    "bytes that are no text": b"\xff\xfe\x00\x80",
    "a pickle": PICKLED,
    "a cell without end": b"1,2,3\n" + b"9" * 200_000 + b",2,3\n",
    "a quote without end": b'a,b,c\n"1,2,3\n' * 3,
    "a formula": b"a,b,c\n=cmd|' /C calc'!A0,1,2\n",
    "rows of any length": b"1,2,3\n1,2\n",
}


DEEP = "[" * 50_000


@later
def _metadata(**changes):
    """Open a data set whose rows' metadata are others, and all digests right."""
    root = dataset_path("small")
    _rewritten(root / "X" / "zarr.json", **changes)
    _resealed(root)
    read_data()


def _rewritten(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _resealed(root):
    (root / MANIFEST).unlink()
    write_manifest(root, "0" * 64)


def _grid(*shape):
    return {"name": "regular", "configuration": {"chunk_shape": shape}}


@later
def _attributes(**changes):
    """Open a data set that has another record, and all digests right."""
    root = dataset_path("small")
    attributes = json.loads((root / "zarr.json").read_text())["attributes"]
    record = dumps({**loads(attributes["record"]), **changes})
    _rewritten(root / "zarr.json", attributes={**attributes, "record": record})
    _resealed(root)
    open_dataset("small")


@later
def _saved(text=None, **changes):
    """Load a model whose record is another text or has other entries, and all digests right."""
    root = run_folder("fitted") / "result"
    if text is None:
        _rewritten(root / RECORD, **changes)
    else:
        (root / RECORD).write_text(text)
    _resealed(root)
    load_model("fitted")


def _layout(kind, *shape):
    return _saved(arrays={"components": (kind, shape)})


@later
def _listed(name):
    """Open a data set whose manifest lists that file as well."""
    path = dataset_path("small") / MANIFEST
    known = json.loads(path.read_text())
    body = {key: value for key, value in known.items() if key != "digest"}
    files = {**body["files"], name: {"bytes": 1, "sha256": "0" * 64}}
    path.write_text(to_sealed_json({**body, "files": files}))
    open_dataset("small")


@later
def _written(file, text, *, is_sealed=False):
    """Read a data set or run of the home of which a file has another content."""
    path = Path("home", file)
    path.write_text(text)
    if is_sealed:
        _resealed(dataset_path("small"))
    READS[path.parts[2]]()


def _values_of_another():
    _resealed(dataset_path("small"))
    (checked,) = check_files(["small"])
    if checked.problems:
        raise StorageError(str(checked.problems[0]))


TABLE = {"schema": {"options": {}, "features": []}, "files": []}
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
STORES = {
    "zarr: a codec that unpickles": _metadata(codecs=[{"name": "numcodecs.pickle"}]),
    "zarr: a codec of nobody": _metadata(codecs=[BYTES, {"name": "os.system"}]),
    "zarr: a codec of others": _metadata(codecs=[BYTES, {"name": "gzip"}]),
    "zarr: objects": _metadata(data_type="object"),
    "zarr: texts": _metadata(data_type="string"),
    "zarr: another type": _metadata(data_type="complex128"),
    "zarr: 1e15 rows": _metadata(shape=[10**15, 3]),
    "zarr: 1e15 rows in one chunk": _metadata(shape=[10**15, 3], chunk_grid=_grid(10**15, 3)),
    "zarr: 1e15 rows in three": _metadata(shape=[3 * 10**15, 3], chunk_grid=_grid(10**15, 3)),
    "zarr: 2**63 rows in three": _metadata(
        shape=[3 * 2**62, 3], chunk_grid=_grid(2**62, 3), data_type="bool"
    ),
    "zarr: a negative shape": _metadata(shape=[-5, 3]),
    "zarr: no shape": _metadata(shape=None),
    "zarr: a group instead": _metadata(node_type="group"),
    "zarr: no JSON": _written("datasets/small/X/zarr.json", DEEP, is_sealed=True),
    "attributes: names that are numbers": _attributes(feature_names=[1, 2, 3]),
    "attributes: a name that is a list": _attributes(name=["x"]),
    "attributes: a picture of another size": _attributes(image_shape=[10**9, 10**9]),
    "attributes: classes that are no mapping": _attributes(class_names=[["a"]]),
    "attributes: a table without a schema": _attributes(table={"files": []}),
    "attributes: a table of other types": _attributes(table={"schema": {"rows": "x"}, "files": []}),
    "attributes: weights of nobody": _attributes(table={**TABLE, "weights": "w"}),
    "attributes: more than there are": _attributes(system="rm"),
    "manifest: a way up": _listed("../../../etc/passwd"),
    "manifest: an absolute path": _listed("/etc/passwd"),
    "manifest: a name with a zero": _listed("X/c/\0"),
    "manifest: nested without end": _written("datasets/small/manifest.json", DEEP),
    "manifest: a list": _written("datasets/small/manifest.json", "[1]"),
    "manifest: of other values": _values_of_another,
    "model: a pickle for a record": _saved(PICKLED.hex()),
    "model: a record nested without end": _saved(DEEP),
    "model: a record of other kinds": _saved(record={"config": 1, "metrics": [], "versions": 0}),
    "model: no arrays": _saved(arrays={}),
    "model: a layout that is no mapping": _saved(arrays=[1]),
    "model: arrays of objects": _layout("O", 2, 2),
    "model: arrays of texts": _layout("<U4", 2, 2),
    "model: arrays of no type": _layout("os.system", 2, 2),
    "model: arrays of code": _layout({"names": ["a"], "formats": ["O"]}, 1),
    "model: 1e15 rows": _layout("<f8", 10**15, 3),
    "model: 2**64 rows": _layout("<f8", 2**64, 3),
    "model: a negative shape": _layout("<f8", -2, -2),
    "model: a shape of texts": _layout("<f8", "2", "2"),
    "model: fewer bytes": _layout("<f8", 1, 1),
}


@later
def _checkpoint(arrays=None, **changes):
    """Read a checkpoint whose record or layout has other values, and all digests right."""
    checkpoints = Checkpoints.of_run("odd")
    checkpoints.save({}, checkpoint(0))
    path = checkpoints.results.path(checkpoint_key(1))
    saved = json.loads((path / RECORD).read_text())
    saved["record"]["value"] |= changes
    saved["arrays"] |= arrays or {}
    (path / RECORD).write_text(json.dumps(saved))
    _resealed(path)
    checkpoints.read(1)


LEASE, FOLD = "runs/under-way/lease.json", "runs/under-way/partial/fold-1/manifest.json"


def _leased(**changes):
    """Return what reads a lease with other values, and the digest right."""
    return _written(LEASE, to_sealed_json({**asdict(lease()), **changes}))


@later
def _resumed(**changes):
    """Go on with a run whose lease has other settings, and the digest right."""
    known = FitSettings(dataset="small", n_components=2).to_json()
    replace(lease(), settings={**known, **changes}).write()
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
    "name: a run above": lambda: load_model("../x"),
    "name: a run anywhere": lambda: open_run("/etc"),
    "name: a report above": lambda: write_report("../../x"),
    "name: checkpoints above": lambda: Checkpoints.of_run("../x"),
    "name: a fold above": lambda: PartialResults.of_run("own").save("../x", {}, {}),
    "name: a data set above": lambda: open_dataset("../x"),
    "name: one to be checked above": lambda: check_files(["../x"]),
    "name: with a zero": lambda: safe_name("a\0b"),
    "checkpoint: a field of nobody": _checkpoint(system="rm"),
    "checkpoint: another record": _checkpoint(runs=[{"value": "converged"}]),
    "checkpoint: a text for a list": _checkpoint(runs="all"),
    "checkpoint: an array of nobody": _checkpoint({"value.runs.9.W": ("<f8", (0,))}),
    "checkpoint: an array within a number": _checkpoint({"value.runs.0.W.x": ("<f8", (0,))}),
    "lease: a list": _written(LEASE, to_sealed_json({})),
    "lease: a pickle": _written(LEASE, PICKLED.hex()),
    "lease: a process below": _leased(pid=-1),
    "lease: a process without end": _leased(pid=2**40),
    "lease: a process that is text": _leased(pid="1"),
    "lease: a time without end": _leased(taken=1e300),
    "lease: settings that are no mapping": _leased(settings="rm -rf"),
    "lease: more than there is": _leased(code="rm -rf"),
    "lease: a setting that is a list": _resumed(label=[1]),
    "lease: a setting of nobody": _resumed(preload="evil.py"),
    "lease: a run above": _resumed(dataset="../x"),
    "fold: a pickle": _written(FOLD, PICKLED.hex()),
    "fold: nested without end": _written(FOLD, DEEP),
    "link: a run outside": _linked("runs/fitted", lambda: load_model("fitted")),
    "link: a data set outside": _linked("datasets/small", lambda: open_dataset("small")),
    "link: a model outside": _linked("runs/fitted/result", lambda: load_model("fitted")),
    "link: partial results outside": _linked(
        "runs/under-way/partial", lambda: Checkpoints.of_run("under-way").save({}, checkpoint(0))
    ),
}


@later
def _transformed(file, content):
    Path(file).write_bytes(content)
    try:
        transform_rows("fitted", TransformSettings(source=file, out=Path("out.csv")))
    finally:
        assert not Path("out.csv").exists()


GROUPS = {
    "rows to transform": {
        **{f"npy: {name}": _transformed("a.npy", each) for name, each in MATRICES.items()},
        **{f"csv: {name}": _transformed("a.csv", each) for name, each in TABLES.items()},
        **{f"a pickle in {name}": _transformed(name, PICKLED) for name in ("a.npy", "./a.pkl")},
    },
    "stores and manifests": STORES,
    "names, runs, leases and links": RUNS,
}


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(tmp_path_factory.mktemp("stocked") / "home"))
        return stock()


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_hostile_is_refused(tally, tmp_path, monkeypatch, stocked, group):
    row = tally(f"hostile {group}", len(GROUPS[group]))
    accepted = []
    for number, (name, use) in enumerate(GROUPS[group].items()):
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
