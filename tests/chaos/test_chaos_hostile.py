"""Files and names made to do harm: each is refused in our own words, and no code in any is run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_files import MARKER, MATRICES, PICKLED, RAW, TABLES, later
from hostile_homes import CLUSTERS, RUNS, STORES
from stock import said_by, stock

from flows.compute.places import read_cluster
from flows.runs.transform import transform_rows
from flows.settings.base import TransformSettings


@later
def _transformed(file: str, content: bytes) -> None:
    Path(file).write_bytes(content)
    try:
        transform_rows("fitted", TransformSettings(source=file, out=Path("out.csv")))
    finally:
        assert not Path("out.csv").exists()


@later
def _loaded(load: Callable[[Path], object], made: Callable[[], bytes]) -> None:
    Path("raw").write_bytes(made())
    load(Path("raw"))


@later
def _cluster(text: str) -> None:
    Path("c.toml").write_bytes(text.encode(errors="surrogateescape"))
    read_cluster(Path("c.toml"))


GROUPS: dict[str, dict[str, Callable[[], object]]] = {
    "rows to transform": {
        **{f"npy: {name}": _transformed("a.npy", each) for name, each in MATRICES.items()},
        **{f"csv: {name}": _transformed("a.csv", each) for name, each in TABLES.items()},
        **{f"a pickle in {name}": _transformed(name, PICKLED) for name in ("a.npz", "./a.pkl")},
    },
    "raw files and archives": {name: _loaded(*each) for name, each in RAW.items()},
    "stores and manifests": STORES,
    "names, runs, leases and links": RUNS,
    "cluster files": {name: _cluster(each) for name, each in CLUSTERS.items()},
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
        harm = any((folder / one).exists() for one in (MARKER, "home/runs/x", "x"))
        out = folder / "outside"
        harm = harm or (out.exists() and any(out.iterdir()))
        row.add(survived=len(message) > 20, wrong=harm or not message)
        accepted += [] if message and not harm else [name]
    assert not accepted
