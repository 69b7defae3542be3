"""Whatever stops a writer, a good data set stays good and no rubbish stays at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from storage import DatasetInfo, StorageError, open_dataset, write_dataset
from storage.atomic import workspace

INFO = DatasetInfo("small")


def entries(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def values(path: Path) -> np.ndarray:
    data = open_dataset(path)
    data.X.verify()
    return data.X.read(0, len(data.X))


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_an_exception_on_the_way_leaves_the_old(make_dataset, stop):
    path = make_dataset()
    before = values(path)

    def blocks():
        yield np.zeros((30, 3))
        raise stop("enough")

    with pytest.raises(stop, match="enough"):
        write_dataset(path, INFO, blocks(), chunk_rows=10)
    assert_array_equal(values(path), before)
    assert entries(path.parent) == [".lock", "small"]


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code that fills 6 chunks of data set argv[1] and calls `middle()` after 3."""
    prelude = """
        import os, resource, signal, sys
        from pathlib import Path
        import numpy as np
        from storage import DatasetInfo, StorageError, write_dataset
        target = Path(sys.argv[1])
        def write(middle):
            def blocks():
                for number in range(6):
                    if number == 3:
                        middle()
                    yield np.random.default_rng(number).normal(size=(2000, 3))
            write_dataset(target, DatasetInfo("small"), blocks(), chunk_rows=2000)
    """
    source = textwrap.dedent(prelude) + textwrap.dedent(code)
    command = [sys.executable, "-W", "error", "-c", source, *map(str, arguments)]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_killed_writer_leaves_the_old_and_the_next_clears_up(make_dataset):
    path = make_dataset()
    before = values(path)
    done = run("write(lambda: os.kill(os.getpid(), signal.SIGKILL))", path)
    assert done.returncode == -signal.SIGKILL
    assert_array_equal(values(path), before)
    assert len(entries(path.parent)) == 3
    make_dataset(seed=1)
    assert entries(path.parent) == [".lock", "small"]
    assert not np.array_equal(values(path), before)


def test_a_writer_killed_between_its_two_renames_loses_nothing(make_dataset):
    path = make_dataset()
    before = values(path)
    code = """
        whole = Path.rename
        def rename(self, other):
            if self.name == "payload":
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(self, other)
        Path.rename = rename
        write(lambda: None)
    """
    assert run(code, path).returncode == -signal.SIGKILL
    assert not path.exists()
    assert_array_equal(values(path), before)
    assert entries(path.parent) == [".lock", "small"]


def test_a_failing_swap_puts_the_old_back(make_dataset, monkeypatch):
    path = make_dataset()
    before = values(path)
    whole = Path.rename

    def rename(self, other):
        if self.name == "payload":
            raise PermissionError(13, "no")
        return whole(self, other)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(StorageError, match="change the permissions"):
        make_dataset(seed=1)
    assert_array_equal(values(path), before)


def test_a_living_writer_is_left_alone(make_dataset, tmp_path):
    path = make_dataset()
    with workspace(path) as work:
        work.payload.mkdir()
        make_dataset(seed=1)
        make_dataset(target=path.parent / "other")
        assert work.payload.is_dir()
    assert entries(path.parent) == [".lock", "other", "small"]


def test_a_file_too_large_for_the_disk_is_explained(make_dataset):
    path = make_dataset()
    before = values(path)
    code = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            write(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
        except StorageError as error:
            print(error)
    """
    done = run(code, path)
    assert done.returncode == 0, done.stderr
    assert f"could not write {path}" in done.stdout
    assert "MiB free" in done.stdout
    assert "free some space" in done.stdout
    assert_array_equal(values(path), before)
    assert entries(path.parent) == [".lock", "small"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 20_000


def test_a_home_that_is_a_file_is_explained(make_dataset, tmp_path):
    (tmp_path / "home").write_text("")
    with pytest.raises(StorageError, match="could not write"):
        make_dataset()
