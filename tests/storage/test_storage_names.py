"""Names and folders: nothing outside the home is ever touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import UnsafeName, home, load_model, open_dataset, safe_name
from storage.paths import resolve_under

BAD = ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", ".hidden", "a\0", "é", "a b", "x" * 129]


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_everywhere(name):
    for use in (safe_name, open_dataset, load_model, lambda n: resolve_under(home(), n)):
        with pytest.raises(UnsafeName, match="expected 1 to 128"):
            use(name)


@pytest.mark.parametrize("name", ["a", "x" * 128, "mnist-test", "run_1.2", "-", "a..b"])
def test_good_names_pass(name):
    assert safe_name(name) == name


@given(st.text(max_size=140))
def test_a_name_that_passes_is_one_plain_entry(name):
    try:
        safe_name(name)
    except UnsafeName:
        return
    assert Path("/root", name).parent == Path("/root")
    assert name.isascii()
    assert 1 <= len(name) <= 128


def test_a_link_out_of_the_root_is_refused(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "way").symlink_to(outside)
    (root / "inside").mkdir()
    (root / "alias").symlink_to(root / "inside")
    with pytest.raises(UnsafeName, match="outside"):
        resolve_under(root, "way")
    assert resolve_under(root, "alias") == root / "alias"


def test_folders_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv("ISM_DASK_HOME")
    assert home() == Path.home() / ".ism-dask"


def test_storage_stands_on_its_own():
    code = (
        "import storage, sys\n"
        "print({'prefect', 'dask', 'distributed', 'typer', 'flows'} & sys.modules.keys())"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
