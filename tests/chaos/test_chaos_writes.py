"""A full disk and a forbidden one: each write says so and what to do, and harms nothing."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stock import files_below, said_by
from support import small_disk
from tally import few_and_many
from writing import WRITES, furnish

from flows.runs.inventory import check_files
from storage import home

PAGE = 4096
NOBODY = 65534
ADVICE = re.compile("free some space|make room|another place|change the permissions")
# Runs that are begun may say that they were; a checkpoint may be whole before it is pointed to.
NEW = (Path("runs", "new"), Path("runs", "under-way", "partial", "checkpoint-00000004"))


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Mount a disk of a megabyte, with a home on it."""
    with small_disk(tmp_path / "disk", "1m") as folder:
        monkeypatch.setenv("ISM_DASK_HOME", str(folder / "home"))
        furnish()
        yield folder


@pytest.mark.long
@few_and_many(few=1, many=60)
def test_the_disk_is_full(tally, disk, count):
    row = tally("disk full (ENOSPC), at every write and any page of it", 0)
    told: dict[str, list[str]] = {name: [] for name in WRITES}
    for name, write in WRITES.items():
        for room in range(count):
            shutil.rmtree(home() / NEW[0], ignore_errors=True)
            before = files_below(disk)
            with _filled(disk / "ballast", room):
                said = said_by(write)
            if not said:
                break
            row.aim += 1
            told[name].append(said)
            row.add(survived=_clear(said, disk), wrong=not _as_before(disk, before))
    assert all(told.values()), told
    # No fit goes on without what it was told to keep.
    assert count == 1 or any("/new/partial/checkpoint-" in each for each in told["a fit"])


@contextmanager
def _filled(ballast: Path, room: int) -> Iterator[None]:
    """Fill the disk in the block, but for some pages."""
    with ballast.open("wb", buffering=0) as handle:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            handle.writelines(bytes(PAGE) for _ in range(10_000))
        handle.truncate(max(0, handle.tell() - room * PAGE))
    try:
        yield
    finally:
        ballast.unlink()


@pytest.fixture
def public_home(monkeypatch):
    """Make a home of root's that everybody may read."""
    if os.geteuid() != 0:
        pytest.skip("only root can give up root's rights")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("ISM_DASK_HOME", str(folder / "home"))
        furnish()
        yield folder


@pytest.mark.long
def test_writing_is_forbidden(tally, public_home):
    row = tally("writing forbidden (EACCES), at every write", 2 * len(WRITES))
    before = files_below(public_home)
    for mode in (0o755, 0o700):
        home().chmod(mode)
        for write in WRITES.values():
            os.seteuid(NOBODY)
            try:
                said = said_by(write)
            finally:
                os.seteuid(0)
            row.add(
                survived=_clear(said, public_home),
                wrong=not _as_before(public_home, before),
            )


def _clear(said: str, folder: Path) -> bool:
    """Say whether an error names the file, and tells what to do."""
    return str(folder) in said and ADVICE.search(said) is not None


def _as_before(folder: Path, before: dict[Path, bytes]) -> bool:
    """Say whether all that was there is there, whole, and nothing beside it."""
    now = files_below(folder)
    own = [home() / each for each in NEW]
    new = [each for each in now.keys() - before.keys() if not any(map(each.is_relative_to, own))]
    is_unchanged = all(now.get(path) == content for path, content in before.items())
    return is_unchanged and not new and not any(each.problems for each in check_files([]))
