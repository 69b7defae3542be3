"""Nothing on disk is a pickle, and nothing that is read from disk could be one."""

from __future__ import annotations

import ast
import base64
import json
import pickle
import pickletools
from collections.abc import Iterator
from pathlib import Path

import pytest
import zarr
from commandline import Command

from flows.settings.base import IngestSettings
from flows.settings.runs import CrossvalSettings, FitSettings
from flows.settings.unsupervised import ClusterSettings
from storage import PartialResults, home

ROOT = Path(__file__).parents[2]
OURS = ("ism_dask", "storage", "flows", "benchmarks", "examples", "deploy")
# Modules that make objects of bytes, whoever wrote those.
UNSAFE = {"pickle", "_pickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
LOADING = {"load", "loads", "Unpickler", "read_pickle", "unsafe_load"}
# What reads arrays of objects unless it is told not to.
ARRAYS = {"numpy.load", "np.load", "np.lib.format.read_array", "numpy.lib.format.read_array"}
# With which the pickles of the newer protocols begin, in base64.
ENCODED = (b"gASV", b"gAWV")


def is_pickle(data: bytes) -> bool:
    """Say whether bytes are a pickle, or a text that holds one."""
    if any(start in data for start in ENCODED):
        return True
    try:
        end = max(position for *_, position in pickletools.genops(data) if position is not None)
    # Whatever else it is, it is broken for a pickle in one of many ways.
    except Exception:
        return False
    return data[:1] == b"\x80" or end == len(data) - 1


def test_pickles_are_known_by_their_looks() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert is_pickle(pickle.dumps({"a": [1.0, "b"]}, protocol))
    within = base64.b64encode(pickle.dumps({"a": 1})).decode()
    assert is_pickle(json.dumps({"result": within}).encode())
    for data in (b"", b".", b"{}", b"\x80", b"PK", b"I am text.\n", b'{"a": 1}'):
        assert not is_pickle(data) or data == b"."


@pytest.mark.chaos
@pytest.mark.usefixtures("prefect_server")
def test_runs_of_all_kinds_leave_no_pickle(here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_HOME, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

    from flows.run_flows import cluster, crossval, fit, ingest
    from flows.tracking.flow_run import run_flow

    # What a fit keeps on its way is to be looked at, too.
    monkeypatch.setattr(PartialResults, "clear", lambda _: None)
    with temporary_settings({PREFECT_HOME: home() / "prefect"}):
        assert PREFECT_LOCAL_STORAGE_PATH.value().is_relative_to(home())
        run_flow(ingest, IngestSettings(dataset="wine"))
        run_flow(fit, FitSettings(dataset="wine", checkpoint=0.0, run="fit"))
        run_flow(crossval, CrossvalSettings(dataset="wine", first=2, run="crossval"))
        run_flow(cluster, ClusterSettings(dataset="digits", n_clusters=3, run="cluster"))
    assert here("report", "fit").status == 0
    assert here("transform", "fit", "wine", "-o", home() / "new.npy").status == 0
    files = {path: path.read_bytes() for path in home().rglob("*") if path.is_file()}
    kinds = {path.suffix for path in files}
    assert kinds >= {".json", ".html", ".npy", ".png"}
    assert len(files) > 50
    assert [path for path, data in files.items() if is_pickle(data)] == []
    told = [data for path, data in files.items() if path.name == "zarr.json"]
    assert told
    assert not [data for data in told if b"pickle" in data or b'"object"' in data]


def test_our_code_makes_no_objects_of_files() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for folder in OURS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, what in _unsafe(ast.parse(path.read_text()))
    ]
    assert found == []


def test_the_search_finds_what_it_is_for() -> None:
    lines = [
        "import pickle",
        "from joblib import load",
        "cloudpickle.loads(b)",
        "np.load(f)",
        "np.load(f, allow_pickle=True)",
        "read(f, allow_pickle=allowed)",
        "eval(text)",
        "pd.read_pickle(f)",
        "yaml.unsafe_load(f)",
    ]
    for line in lines:
        assert list(_unsafe(ast.parse(line))), line
    for line in ("json.loads(t)", "np.load(f, allow_pickle=False)", "cloudpickle.dumps(o)"):
        assert not list(_unsafe(ast.parse(line))), line


def _unsafe(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield lines that unpickle, or that may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        else:
            names = []
        for name in names:
            if name.split(".")[0] in UNSAFE:
                yield node.lineno, name
        if isinstance(node, ast.Call) and _is_unsafe(node):
            yield node.lineno, ast.unparse(node.func)


def _is_unsafe(call: ast.Call) -> bool:
    called = ast.unparse(call.func)
    module, _, name = called.rpartition(".")
    given = {each.arg: ast.unparse(each.value) for each in call.keywords}
    if given.get("allow_pickle", "False") != "False":
        return True
    if called in ARRAYS:
        return "allow_pickle" not in given
    if name in LOADING and module in {"cloudpickle", "pd", "pandas", "yaml", *UNSAFE}:
        return True
    return called in {"eval", "exec"}


@pytest.mark.parametrize("codec", ["pickle", "numcodecs.pickle", "numcodecs.zlib"])
def test_a_store_cannot_ask_to_be_unpickled(tmp_path: Path, codec: str) -> None:
    zarr.create_array(tmp_path, shape=(3,), chunks=(3,), dtype="f8", compressors=None)[...] = 1.0
    told = json.loads((tmp_path / "zarr.json").read_text())
    told["codecs"].append({"name": codec, "configuration": {"id": "pickle"}})
    (tmp_path / "zarr.json").write_text(json.dumps(told))
    touched = tmp_path / "touched"
    (tmp_path / "c" / "0").write_bytes(pickle.dumps(_Touching(touched)))
    with pytest.raises((KeyError, ValueError, TypeError)):
        zarr.open_array(tmp_path, mode="r", zarr_format=3)[...]
    assert not touched.exists()


class _Touching:
    """It makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self._path,)
