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
from flows.runs.published import History
from flows.settings.refresh import RefreshSettings
from storage import StorageError, load_model, model_hash
from storage.runs import run_names

WITHOUT_OUTPUTS = RUN_FILE.partition("[[")[0]


def _night(run_file):
    return refresh(RefreshSettings(file=str(run_file)))


@few_and_many(few=5, many=160)
def test_a_table_is_bad_or_damaged(tally, count, tmp_path):
    """Nothing is published, and the history names the limit, or the file."""
    row, rng = tally("a refresh finds a bad table, or a damaged file", count), random.Random(count)
    run_file = open_shop(tmp_path, WITHOUT_OUTPUTS)
    _night(run_file)
    part, published = tmp_path / "parts" / "a.parquet", model_hash("sales")
    good, frame = part.read_bytes(), pd.read_parquet(part)
    for number in range(count):
        at = rng.randrange(4, len(good) - 1)
        change, words = rng.choice([*BAD.values()])
        expected = ("failed", "suspicious")[number % 2]
        if expected == "suspicious":
            change(frame, np.random.default_rng(number)).to_parquet(part)
            _night(run_file)
        else:
            noise, words = good[:at] + rng.randbytes(len(good) - at), "a.parquet"
            part.write_bytes(rng.choice((noise, good[:at])))
            with pytest.raises(StorageError):
                _night(run_file)
        last = History("sales").records[-1]
        named = last.state == expected and any(words in each for each in last.reasons)
        row.add(survived=named, wrong=model_hash("sales") != published)


@few_and_many(few=2, many=20)
def test_the_disk_is_full_in_the_middle(tally, count, tmp_path, monkeypatch):
    """A whole run stays published; with room again, the next night does its work."""
    row, rng = tally("disk full in the middle of a refresh", count), random.Random(count)
    limits = "[refresh]\nkeep = 2\nmax_turn = 1.0\n"
    run_file = open_shop(tmp_path, WITHOUT_OUTPUTS.replace("[refresh]\n", limits))
    part = tmp_path / "parts" / "a.parquet"
    with small_disk(tmp_path / "disk", "3m") as disk:
        monkeypatch.setenv("ISM_DASK_HOME", str(disk / "home"))
        _night(run_file)
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
            # The record of a published run may not fit the disk: the next night writes it.
            made = [model_hash(each) for each in run_names() if each != "sales"]
            whole = model_hash("sales") in (before, *made)
            load_model("sales")
            ballast.unlink(missing_ok=True)
            again = _night(run_file).state
            survived = ended in ("named", "published") and again in ("published", "unchanged")
            row.add(survived=survived, wrong=not whole)


@pytest.mark.timeout(1800)
@few_and_many(few=1, many=3)
def test_the_machine_is_off_at_night(tally, count, doomed, tmp_path):
    """Server and worker are away while runs are due: afterwards the last one or a later works."""
    row = tally("the machine is off while refreshes are due", count)
    run_file = open_shop(tmp_path, WITHOUT_OUTPUTS)
    command = (sys.executable, "-m", "flows.cli", "schedule", run_file, "--cron", "* * * * *")
    ran(*command).check_returncode()
    # The server plans the runs of a new schedule in a moment.
    wait(lambda: doomed.runs_of("sales"))
    for number in range(count):
        change_part(tmp_path, "a", lambda frame, _, rows=number: frame.iloc[rows:])
        # A worker has taken up some, such as the one that ended with its machine.
        begun = {
            each["id"] for each in doomed.runs_of("sales") if each["state_type"] != "SCHEDULED"
        }
        records = len(History("sales").records)
        doomed.kill()
        time.sleep(150)  # two are due, and one of them was missed by more than a minute
        doomed.start()
        back = datetime.now(UTC)
        with running_worker(doomed.api, "local-process"):
            wait(lambda records=records: len(History("sales").records) > records, 240)
            mine = wait(lambda begun=begun, back=back: _all_over(doomed, back, begun), 240)
        # A run that was due only when the server was back may do the work for all of them.
        survived = {each["state_type"] for each in mine} <= {"CANCELLED", "COMPLETED"}
        print(
            "runs that were due:", [(each["state_type"], each["state"]["message"]) for each in mine]
        )
        # One that was on when the test ended the worker has ended without a word.
        failed = {each.reasons for each in History("sales").records if each.state == FAILED}
        row.add(survived=survived, wrong=bool(failed - {("its process ended without a word",)}))


def _all_over(serving, when, known):
    """Return the new runs that were due at a time; none if one of them goes on."""
    due = [
        each
        for each in serving.runs_of("sales")
        if datetime.fromisoformat(each["expected_start_time"]) < when and each["id"] not in known
    ]
    return due if all(each["state_type"] in OVER for each in due) else []
