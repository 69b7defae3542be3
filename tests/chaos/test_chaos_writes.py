"""A full disk and a forbidden one: each write says so and what to do, and harms nothing."""

import errno
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from stock import (
    PIECE,
    REQUEST,
    checkpoint,
    files_below,
    keep_model,
    keep_results,
    said_by,
    stock,
    store_small,
)
from support import small_disk
from tally import few_and_many
from waiting import served

from flows.builtin import ingest
from flows.builtin.raw_files import fetch
from flows.reports.pages import write_report
from flows.runs.crossval import run_crossval
from flows.runs.fit import run_fit
from flows.runs.inventory import check_files
from flows.runs.transform import transform_rows
from flows.services.leases import hold_lease
from flows.services.liveness import RunReceipt
from flows.services.service import ServiceRecord, services_folder
from flows.settings.base import TransformSettings
from flows.settings.runs import CrossvalSettings, FitSettings
from storage import Checkpoints, PartialResults, home, ingest_table, write_record


def fit(run):
    return FitSettings(
        dataset="wine", criterion="dependence", n_components=2, run=run, checkpoint=0.0, force=True
    )


def furnish():
    """Fill the home, and the folder beside it, with what is there before anything is written."""
    stock()
    ingest("wine")
    run_fit(fit("wine-two"))
    services_folder().mkdir()
    (home() / "raw" / "own").mkdir(parents=True)
    beside().mkdir()
    rows = "".join(f"{n % 7},{n % 5},{'no' if n % 2 else 'yes'}\n" for n in range(2000))
    (beside() / "own.csv").write_text(f"a,b,y\n{rows}")
    write_record("own", 1, {"state": "published"})
    for name in ("a table", "a slip", "a record", "a report", "new features"):
        WRITES[name]()
    (home() / "raw" / "own" / "file").write_bytes(b"old")


def beside():
    """Return a folder that people have chosen, on the same disk."""
    return home().with_name("out")


def _lease():
    with hold_lease("under-way", "fit", {}, lambda: True):
        pass


def _download():
    folder = partial(SimpleHTTPRequestHandler, directory=beside())
    with served(folder) as address:
        fetch(f"{address}/own.csv", home() / "raw" / "own" / "file")


API, REPORT = "http://127.0.0.1", {"key": "a", "data": "c"}
WRITES = {
    "a data set": lambda: store_small(1),
    "an ingest": lambda: ingest("wine", force=True),
    "a table": lambda: ingest_table(beside() / "own.csv", "table", label="y", force=True),
    "a download": _download,
    "a model": lambda: keep_model(1),
    "results": lambda: keep_results(0.1),
    "a checkpoint": lambda: Checkpoints.of_run("under-way").save(REQUEST, checkpoint(7)),
    "a fold": lambda: PartialResults.of_run("under-way").save(PIECE, REQUEST, {"accuracy": 0.1}),
    "a lease": _lease,
    "a report": lambda: write_report("wine-two"),
    "new features": lambda: transform_rows(
        "wine-two", TransformSettings(source="wine", out=beside() / "new.csv")
    ),
    "a slip": lambda: RunReceipt(run="0" * 32, api=API, page=REPORT).write(),
    "a record": lambda: ServiceRecord(name="own", address=API).write(),
    "a history": lambda: write_record("own", 1, {"state": "unchanged"}),
    "a fit": lambda: run_fit(fit("new")),
    "folds": lambda: run_crossval(
        CrossvalSettings(dataset="wine", criterion="dependence", first=1, run="new")
    ),
}


PAGE = 4096
NOBODY = 65534
ADVICE = re.compile("free some space|make room|another place|allow it, or use another folder")
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
    messages = {name: [] for name in WRITES}
    for name, write in WRITES.items():
        for room in range(count):
            shutil.rmtree(home() / NEW[0], ignore_errors=True)
            before = files_below(disk)
            with _filled(disk / "ballast", room):
                said = said_by(write)
            if not said:
                break
            row.aim += 1
            messages[name].append(said)
            row.add(survived=_clear(said, disk), wrong=not _as_before(disk, before))
    assert all(messages.values()), messages
    # No fit goes on without its checkpoints.
    assert count == 1 or any("/new/partial/checkpoint-" in each for each in messages["a fit"])


@contextmanager
def _filled(ballast, room):
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
            row.add(survived=_clear(said, public_home), wrong=not _as_before(public_home, before))


def _clear(said, folder):
    """Say whether an error names the file, and tells what to do."""
    return str(folder) in said and ADVICE.search(said) is not None


def _as_before(folder, before):
    """Say whether all that was there is there, whole, and nothing beside it."""
    now = files_below(folder)
    own = [home() / each for each in NEW]
    new = [each for each in now.keys() - before.keys() if not any(map(each.is_relative_to, own))]
    is_unchanged = all(now.get(path) == content for path, content in before.items())
    return is_unchanged and not new and not any(each.problems for each in check_files([]))
