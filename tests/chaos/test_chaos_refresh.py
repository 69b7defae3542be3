"""Nights of a refresh: bad tables, damaged files, a full disk, and machines that were off."""

import random
import shutil
import sys
import time
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from daskparts import ran
from serving import OVER, running_worker
from shop import BAD, RUN_FILE, change_part, open_shop
from support import small_disk
from tally import few_and_many
from waiting import wait

from flows.refreshes.refresh import refresh
from flows.results.refresh import FAILED
from flows.runs.published import History, publishing
from flows.settings.refresh import RefreshSettings
from storage import StorageError, load_model, model_hash
from storage.runs import run_names

ROWS = {
    "labels corrupted: half of them at random": ["half of all labels at random"],
    "classes new: a third one in a fifth of a file": ["a third class in a fifth of a file"],
    "columns renamed, or rows doubled": [
        "two columns renamed",
        "all rows doubled",
    ],
}


WITHOUT_OUTPUTS = RUN_FILE.partition("[[")[0]


@pytest.fixture
def shop(tmp_path):
    """Return the run file of a table that is refreshed once."""
    run_file = open_shop(tmp_path, WITHOUT_OUTPUTS)
    _night(run_file)
    return run_file


def _night(run_file):
    return refresh(RefreshSettings(file=str(run_file)))


@few_and_many(few=3, many=20)
@pytest.mark.parametrize("fault", ROWS)
def test_a_table_is_bad(tally, count, fault, shop):
    row = tally(f"{fault}: not published, and the limit is named", count)
    part, published = shop.parent / "parts" / "a.parquet", model_hash("sales")
    good = pd.read_parquet(part)
    for number in range(count):
        change, words = BAD[ROWS[fault][number % len(ROWS[fault])]]
        change(good, np.random.default_rng(number)).to_parquet(part)
        night = _night(shop)
        named = any(words in each for each in night.reasons)
        is_changed = model_hash("sales") != published
        row.add(survived=night.state == "suspicious" and named, wrong=is_changed)


@few_and_many(few=5, many=100)
def test_a_file_is_damaged(tally, count, shop):
    row = tally("a file of the table is cut or overwritten: named in the history", count)
    part, published = shop.parent / "parts" / "a.parquet", model_hash("sales")
    good, rng = part.read_bytes(), random.Random(count)
    for number in range(count):
        at = rng.randrange(4, len(good) - 1)
        noise = good[:at] + rng.randbytes(len(good) - at)
        part.write_bytes(noise if number % 2 else good[:at])
        with pytest.raises(StorageError):
            _night(shop)
        last = History("sales").records[-1]
        named = last.state == "failed" and "a.parquet" in last.reasons[0]
        row.add(survived=named, wrong=model_hash("sales") != published)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Mount a small disk for the home."""
    with small_disk(tmp_path / "disk", "3m") as disk:
        monkeypatch.setenv("ISM_DASK_HOME", str(disk / "home"))
        yield disk


@few_and_many(few=2, many=20)
def test_the_disk_is_full_in_the_middle(tally, count, disk, tmp_path):
    """A whole run stays published; with room again, the next night does its work."""
    row = tally("disk full in the middle of a refresh", count)
    run_file = open_shop(
        tmp_path, WITHOUT_OUTPUTS.replace("[refresh]\n", "[refresh]\nkeep = 2\nmax_turn = 1.0\n")
    )
    rng = random.Random(count)
    _night(run_file)
    part = tmp_path / "parts" / "a.parquet"
    frame, ballast = pd.read_parquet(part), disk / "ballast"
    for number in range(count):
        before = model_hash("sales")
        frame.iloc[: 399 - number].to_parquet(part)
        room, free = rng.randrange(0, 250_000), shutil.disk_usage(disk).free
        ballast.write_bytes(bytes(max(0, free - room)))
        try:
            ended = _night(run_file).state
        except StorageError as error:
            ended = "named" if "free some space" in str(error) else str(error)
        # Of a run that is published, the record may not fit the disk: the next night writes it.
        made = [model_hash(each) for each in run_names() if each != "sales"]
        whole = model_hash("sales") in (before, *made)
        load_model("sales")
        ballast.unlink(missing_ok=True)
        again = _night(run_file).state
        survived = ended in ("named", "published") and again in ("published", "unchanged")
        row.add(survived=survived, wrong=not whole)


POOL = "local-process"


@pytest.mark.timeout(900)
@few_and_many(few=1, many=3)
def test_two_schedules_in_one_minute(tally, count, serving, tmp_path):
    """Both are carried out; a run of one that another process refreshes meanwhile is cancelled."""
    row = tally("two schedules in one minute, and one that overlaps", count)
    files = [_own_shop(tmp_path, name) for name in ("left", "right")]
    with running_worker(serving.api, POOL):
        for number in range(count):
            for each in files:
                _shorten(each, number)
            known = {name: len(_ended(serving, name)) for name in ("left", "right")}
            for each in files:
                _schedule(serving, each, "* * * * *")
            done = [_next_end(serving, name, count) for name, count in known.items()]
            survived = [each["state"]["name"] == "Published" for each in done]
            with publishing("left"):
                late = _next_end(serving, "left", len(_ended(serving, "left")))
            survived.append(late["state_type"] == "CANCELLED")
            for each in files:
                _schedule(serving, each, "0 2 29 2 *")
            states = [each.state for each in History("right").records]
            row.add(survived=all(survived), wrong="failed" in states)


@pytest.mark.timeout(1800)
@few_and_many(few=1, many=3)
def test_the_machine_is_off_at_night(tally, count, doomed, tmp_path):
    """Server and worker are away while runs are due: afterwards the last one or a later works."""
    row = tally("the machine is off while refreshes are due", count)
    run_file = _own_shop(tmp_path, "left")
    _schedule(doomed, run_file, "* * * * *")
    wait(lambda: doomed.runs_of("left"))  # the server plans the runs of a new schedule in a moment
    for number in range(count):
        _shorten(run_file, number)
        known = {each["id"] for each in doomed.runs_of("left") if _has_begun(each)}
        records = len(History("left").records)
        doomed.kill()
        time.sleep(150)  # two are due, and one of them was missed by more than a minute
        doomed.start()
        back = datetime.now(UTC)
        with running_worker(doomed.api, POOL):
            wait(lambda records=records: len(History("left").records) > records, 240)
            mine = wait(lambda known=known, back=back: _all_over(doomed, back, known), 240)
        # A run that was due only when the server was back may do the work for all of them.
        survived = {each["state_type"] for each in mine} <= {"CANCELLED", "COMPLETED"}
        # One that was on when the test ended the worker has ended without a word.
        failed = {each.reasons for each in History("left").records if each.state == FAILED}
        row.add(survived=survived, wrong=bool(failed - {("its process ended without a word",)}))


def _own_shop(folder, name):
    (folder / name).mkdir()
    text = WITHOUT_OUTPUTS.replace('"sales"', f'"{name}"').replace('"shop"', f'"{name}"')
    return open_shop(folder / name, text)


def _shorten(run_file, rows):
    change_part(run_file.parent, "a", lambda frame, _: frame.iloc[rows:])


def _schedule(serving, run_file, cron):
    command = (sys.executable, "-m", "flows.cli", "schedule", run_file, "--cron", cron)
    ran(*command, PREFECT_API_URL=serving.api).check_returncode()


def _has_begun(run):
    """Return whether a worker has taken up a run, such as the one that ended with its machine."""
    return run["state_type"] != "SCHEDULED"


def _ended(serving, name):
    return [each for each in serving.runs_of(name) if each["state_type"] in OVER]


def _next_end(serving, name, known):
    """Return the run of a schedule that ends after so many others."""
    return wait(lambda: _ended(serving, name)[known:], 240)[0]


def _all_over(serving, when, known):
    """Return the new runs that were due at a time; none if one of them goes on."""
    due = [
        each
        for each in serving.runs_of("left")
        if datetime.fromisoformat(each["expected_start_time"]) < when and each["id"] not in known
    ]
    return due if all(each["state_type"] in OVER for each in due) else []
