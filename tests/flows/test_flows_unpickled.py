"""Nothing on disk is a pickle, and nothing that is read from disk could be one."""

import pickletools
import re
from pathlib import Path

import pytest
from prefect.settings import PREFECT_HOME, PREFECT_LOCAL_STORAGE_PATH, temporary_settings
from support import flown

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
    assert kinds >= {".json", ".html", ".npy", ".bin"}
    assert len(files) > 25
    assert [path for path, data in files.items() if is_pickle(data)] == []
    stored = [data for path, data in files.items() if path.name == "zarr.json"]
    assert stored
    assert not [data for data in stored if b"pickle" in data or b'"object"' in data]


def test_our_code_makes_no_objects_of_files():
    files = (path for folder in OURS for path in sorted((ROOT / folder).rglob("*.py")))
    found = {str(path): UNSAFE.findall(path.read_text()) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}
