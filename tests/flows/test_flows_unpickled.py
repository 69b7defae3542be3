"""Nothing on disk is a pickle, and nothing that is read from disk could be one."""

import base64
import json
import pickle
import pickletools
import re
from pathlib import Path

import pytest
import zarr
from prefect.settings import PREFECT_HOME, PREFECT_LOCAL_STORAGE_PATH, temporary_settings
from support import MARKER, PICKLED, flown

from flows.settings.base import IngestSettings
from flows.settings.runs import CrossvalSettings, FitSettings
from flows.settings.unsupervised import ClusterSettings
from storage import PartialResults, home

ROOT = Path(__file__).parents[2]
OURS = ("ism_dask", "storage", "flows", "benchmarks", "examples", "deploy")
# Imports and calls that make objects of the bytes of strangers, and that read arrays of objects.
UNSAFE = re.compile(
    r"""
    ^\s*(?:import|from)\s+(?:_?pickle|dill|joblib|shelve|marshal|jsonpickle)\b
      (?!\ import\ cpu_count\s*(?:\#|$))
    | \b(?:cloudpickle|pd|pandas|yaml)\.(?:loads?|Unpickler|read_pickle|unsafe_load)\(
    | \b(?:np|numpy)\.(?:load|lib\.format\.read_array)\((?![^)]*allow_pickle)
    | \ballow_pickle=(?!False\b)
    | (?<![\w.`])(?:eval|exec)\(
    """,
    re.MULTILINE | re.VERBOSE,
)
# With which the pickles of the newer protocols begin, in base64.
ENCODED = (b"gASV", b"gAWV")


def is_pickle(data):
    """Say whether bytes are a pickle, or a text that holds one."""
    if any(start in data for start in ENCODED):
        return True
    try:
        end = max(position for *_, position in pickletools.genops(data) if position is not None)
    # Whatever else it is, it is broken for a pickle in one of many ways.
    except Exception:
        return False
    return data[:1] == b"\x80" or end == len(data) - 1


def test_pickles_are_known_by_their_looks():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert is_pickle(pickle.dumps({"a": [1.0, "b"]}, protocol))
    within = base64.b64encode(pickle.dumps({"a": 1})).decode()
    assert is_pickle(json.dumps({"result": within}).encode())
    for data in (b"", b".", b"{}", b"\x80", b"PK", b"I am text.\n", b'{"a": 1}'):
        assert not is_pickle(data) or data == b"."


@pytest.mark.chaos
@pytest.mark.usefixtures("prefect_server")
def test_runs_of_all_kinds_leave_no_pickle(here, monkeypatch):
    # What a fit keeps on its way is to be looked at, too.
    monkeypatch.setattr(PartialResults, "clear", lambda _: None)
    with temporary_settings({PREFECT_HOME: home() / "prefect"}):
        assert PREFECT_LOCAL_STORAGE_PATH.value().is_relative_to(home())
        flown("ingest", IngestSettings(dataset="wine"))
        flown("fit", FitSettings(dataset="wine", checkpoint=0.0, run="fit"))
        flown("crossval", CrossvalSettings(dataset="wine", first=2, run="crossval"))
        flown("cluster", ClusterSettings(dataset="digits", n_clusters=3, run="cluster"))
    assert here("report", "fit").status == 0
    assert here("transform", "fit", "wine", "-o", home() / "new.npy").status == 0
    files = {path: path.read_bytes() for path in home().rglob("*") if path.is_file()}
    kinds = {path.suffix for path in files}
    assert kinds >= {".json", ".html", ".npy", ".png"}
    assert len(files) > 25
    assert [path for path, data in files.items() if is_pickle(data)] == []
    stored = [data for path, data in files.items() if path.name == "zarr.json"]
    assert stored
    assert not [data for data in stored if b"pickle" in data or b'"object"' in data]


def test_our_code_makes_no_objects_of_files():
    files = (path for folder in OURS for path in sorted((ROOT / folder).rglob("*.py")))
    found = {str(path): UNSAFE.findall(path.read_text()) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("line", "is_unsafe"),
    [
        ("import pickle", True),
        ("from joblib import load", True),
        ("from joblib import cpu_count, load", True),
        ("from joblib import cpu_count  # alone", False),
        ("cloudpickle.loads(b)", True),
        ("np.load(f)", True),
        ("np.load(f, allow_pickle=True)", True),
        ("read(f, allow_pickle=allowed)", True),
        ("eval(text)", True),
        ("pd.read_pickle(f)", True),
        ("yaml.unsafe_load(f)", True),
        ("json.loads(t)", False),
        ("np.load(f, allow_pickle=False)", False),
        ("cloudpickle.dumps(o)", False),
        ("model.eval(x)", False),
    ],
)
def test_the_search_finds_what_it_is_for(line, is_unsafe):
    assert bool(UNSAFE.search(line)) is is_unsafe


@pytest.mark.parametrize("codec", ["pickle", "numcodecs.pickle", "numcodecs.zlib"])
def test_a_store_cannot_ask_to_be_unpickled(tmp_path, monkeypatch, codec):
    monkeypatch.chdir(tmp_path)
    zarr.create_array(tmp_path, shape=(3,), chunks=(3,), dtype="f8", compressors=None)[...] = 1.0
    told = json.loads((tmp_path / "zarr.json").read_text())
    told["codecs"].append({"name": codec, "configuration": {"id": "pickle"}})
    (tmp_path / "zarr.json").write_text(json.dumps(told))
    (tmp_path / "c" / "0").write_bytes(PICKLED)
    with pytest.raises((KeyError, ValueError, TypeError)):
        zarr.open_array(tmp_path, mode="r", zarr_format=3)[...]
    assert not (tmp_path / MARKER).exists()
