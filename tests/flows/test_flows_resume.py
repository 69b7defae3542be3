"""Runs that are cut off: reported, taken up again, and never computed by two at once."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from support import Diary, doomed_command, store_own
from waiting import wait

from flows.errors import FlowError
from flows.progress.watching import watch_progress
from flows.runs.fit import run_fit
from flows.runs.resumable import resumable_run
from flows.services.leases import Lease, find_lease, hold_lease
from flows.settings.runs import FitSettings
from ism_dask.records.checkpoint import Checkpoint
from storage import (
    Checkpoints,
    DatasetInfo,
    PartialResults,
    StorageError,
    dataset_path,
    model_hash,
    open_run,
    run_folder,
    saved_run_path,
    write_dataset,
)
from storage.manifest import write_manifest

# Of one width and one start.
MEDIAN = ("--criterion", "dependence", "--sigma", "median")
FIT = ("fit", "own", *MEDIAN, "--engine", "exact", "--tol", "1e-12", "-q", "2", "--max-iter", "8")
CLUSTER = ("cluster", "own", "-k", "3", "--outer-tol", "1e-6", "--max-outer", "6")
CROSSVAL = ("crossval", "own", *MEDIAN, "--folds", "4")


def _tumours():
    """Store rows and classes for which the iterations swing: steps along the gradient follow."""
    X, y = (each[:300] for each in load_breast_cancer(return_X_y=True))
    write_dataset(dataset_path("own"), DatasetInfo("own", default_label="y"), [X], {"y": y})


def _prices():
    """Store a number that a fit by prediction takes some steps to explain."""
    X = np.random.default_rng(0).normal(size=(400, 6))
    store_own(400, 6, y=np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2])


def _without_seconds(value):
    """Return metrics without the times that they took."""
    if isinstance(value, Mapping):
        pairs = value.items()
        return {key: _without_seconds(each) for key, each in pairs if key != "seconds"}
    return [*map(_without_seconds, value)] if isinstance(value, list | tuple) else value


@pytest.mark.long
@pytest.mark.parametrize(
    ("store", "command", "at"),
    [
        (partial(store_own, 900, 12), FIT, "partial/checkpoint-00000004"),
        (_tumours, ("fit", "own", "-q", "2", *MEDIAN), "partial/checkpoint-00000012"),
        (_prices, ("fit", "own", "-q", "2"), "partial/checkpoint-00000004"),
        (partial(store_own, 300, 6), CLUSTER, "partial/checkpoint-00000012"),
        (partial(store_own, 300, 6), CROSSVAL, "partial/fold-3"),
    ],
)
def test_a_run_that_was_killed_is_listed_and_goes_on_to_the_same_result(
    here, monkeypatch, store, command, at
):
    store()
    at_once = ("--plain", "--checkpoint", "0", "--run")
    assert here(*command, *at_once, "whole").status == 0
    doomed = doomed_command(f"cut/{at}", 1, *command, *at_once, "cut")
    ended = subprocess.run(doomed, capture_output=True, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended
    results, newest = PartialResults.of_run("cut"), Checkpoints.of_run("cut").find()
    known = results.keys()
    (line,) = here("runs", "--json").answer["unfinished"]
    assert (line["name"], line["kind"], line["running"]) == ("cut", command[0], False)
    output = here("runs").out
    assert f"cut: {line['description']}" in output
    assert re.search(f"cut: {command[0]}, process .* ended without a word", output)
    assert "`ism-dask resume cut` goes on with it" in output

    later = []
    save = PartialResults.save
    saving = lambda *given: later.append(given[1]) or save(*given)  # noqa: E731
    monkeypatch.setattr(PartialResults, "save", saving)
    resumed = here("resume", "cut", "--plain")
    assert resumed.status == 0
    assert known
    assert not {*known} & {*later}  # nothing is computed twice
    assert "this run was started before: process" in resumed.out
    whole, cut = open_run("whole").metrics, open_run("cut").metrics
    assert _without_seconds(cut) == _without_seconds(whole)
    if "checkpoint" in at:
        assert f", saved up to {newest.progress}" in output
        assert f"resuming at {newest.progress}" in resumed.out
        steps = sum(len(each.history) for each in newest.runs if each is not None)
        assert steps >= int(at[-8:]) - 3 or newest.outer is not None
    assert model_hash("cut") == model_hash("whole")
    assert sorted(each.name for each in run_folder("cut").iterdir()) == [".lock", "result"]
    assert here("runs", "--json").answer["unfinished"] == []


@pytest.mark.long
def test_interrupted_a_fit_keeps_what_it_has(here):
    store_own(4_000, 20)
    arguments = ("--plain", "--checkpoint", "1000", "--max-iter", "40", "--run", "cut")
    command, pipe = doomed_command("", 0, *FIT, *arguments), subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:
        # It says what it has come to before it takes note of it: the first is noted for certain
        # when it has said the second.
        assert [process.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, b"ism-dask: interrupted\n")
    *iterations, advice = out.decode().splitlines()
    assert advice == "`ism-dask resume cut` goes on from what is saved of it"
    reached = int(iterations[-1]) if iterations else 2
    newest = Checkpoints.of_run("cut").find()
    assert newest.progress in {f"iteration {reached}", f"iteration {reached + 1}"}
    assert find_lease("cut").ended == "was interrupted"
    assert "was interrupted, saved up to" in here("runs").out


@pytest.fixture
def settings():
    store_own(300, 6)
    fit = FitSettings(dataset="own", criterion="dependence", sigma="median", n_components=2)
    return replace(fit, run="mine", checkpoint=0.0, tol=1e-9)


def notes(settings):
    diary = Diary()
    with watch_progress(diary):
        run_fit(settings)
    return diary.notes


ON = "resuming at iteration 4 (--afresh starts from the beginning)"
OVER = "it starts afresh: data or settings have changed since it was cut off"


@pytest.mark.parametrize(
    ("changes", "rows", "expected"),
    [
        ({}, 300, [ON]),
        ({"checkpoint": 5.0}, 300, [ON]),  # how often it is saved does not matter
        ({"tol": 1e-8}, 300, [OVER]),
        ({"afresh": True}, 300, []),
        ({}, 301, [OVER]),
    ],
)
def test_the_same_command_goes_on_by_itself(settings, monkeypatch, changes, rows, expected):
    def fails_at_three(_reports, state):
        if state.iteration == 3:
            raise LookupError("no more")

    with monkeypatch.context() as patch:
        patch.setattr("flows.progress.watching.FitReports.on_iteration", fails_at_three)
        with pytest.raises(LookupError, match="no more"):
            run_fit(settings)
    store_own(rows, 6)
    begun, *going_on = notes(replace(settings, **changes))
    assert "failed: no more" in begun
    assert going_on == expected


def test_a_start_that_was_replaced_is_a_new_one(settings, monkeypatch):
    run_fit(replace(settings, run="start"))
    settings = replace(settings, start_from="start", max_iter=3, tol=None)
    with monkeypatch.context() as patch:
        patch.setattr("flows.runs.fit.intervals", None)
        patch.setattr("flows.runs.fit.save_fitted", None)
        with pytest.raises(TypeError):
            run_fit(settings)
    run_fit(replace(settings, run="start", start_from=None, seed=1, force=True))
    assert notes(settings)[1:] == [OVER]


def left_behind(settings, **process):
    """Return the lease of a process, by default this one, which it has written."""
    lease = Lease(run="mine", kind="fit", settings=settings.to_json(), **process)
    lease.path.parent.mkdir(parents=True, exist_ok=True)
    lease.write()
    return lease


def test_a_run_has_one_process_at_a_time_and_is_not_resumed_when_complete(settings, here):
    with hold_lease("mine", "fit", settings.to_json(), lambda: True):
        with pytest.raises(FlowError) as error:
            run_fit(settings)
        assert "there is nothing to resume" in here("resume", "mine", "--plain").failed(1)
        assert "computes it since" in here("runs").out
    assert f"the run 'mine' is being computed: process {os.getpid()} on" in str(error.value)
    assert find_lease("mine") is None
    assert run_fit(settings).run == "mine"
    complete = here("resume", "mine", "--plain").failed(2)
    assert "the run 'mine' is complete; see `ism-dask show mine`" in complete


@pytest.mark.parametrize("command", ["fit", "cluster", "crossval"])
def test_a_run_that_was_taken_over_saves_nothing(here, monkeypatch, command):
    """Another machine takes the lease while the result is written, when the fit is over."""
    _tumours()

    def written(folder, digest):
        if folder.parent.parent.name == "mine":
            replace(find_lease("mine"), host="elsewhere", pid=1).write()
        write_manifest(folder, digest)

    monkeypatch.setattr("storage.saved_arrays.write_manifest", written)
    more = ("-k", 2) if command == "cluster" else ("--criterion", "dependence", "-q", 1)
    ended = here(command, "own", *more, "--run", "mine", "--max-iter", 1, "--plain")
    assert "was taken from this process" in ended.failed(1)
    assert saved_run_path("mine") is None
    assert "`ism-dask runs` has how far it is" in here("show", "mine").failed(2)


def test_a_lease_is_over_when_it_is_not_renewed_or_its_process_is_another(settings):
    lease = left_behind(settings, host="elsewhere", pid=1)
    assert lease.held
    with pytest.raises(FlowError, match="process 1 on elsewhere computes it since"):
        run_fit(settings)
    os.utime(lease.path, (time.time() - 61, time.time() - 61))
    (begun,) = notes(settings)
    assert "process 1 on elsewhere, begun" in begun
    assert "ended without a word" in begun
    # A process that has the number of one that died.
    lease = left_behind(settings)
    assert lease.held
    replace(lease, created=lease.created - 100).write()
    assert len(notes(replace(settings, force=True))) == 1


def test_a_run_that_fails_before_there_is_anything_leaves_no_trace(settings):
    with pytest.raises(RuntimeError), resumable_run("mine", "fit", settings, {}):
        raise RuntimeError
    assert not run_folder("mine").exists()


def test_the_lease_of_a_process_that_lives_is_renewed(settings, monkeypatch):
    monkeypatch.setattr("flows.services.leases.SIGN_OF_LIFE", 0.05)
    with hold_lease("mine", "fit", settings.to_json(), lambda: True):
        first = find_lease("mine")
        wait(lambda: find_lease("mine").renewed > first.renewed)


def test_who_is_thought_dead_and_wakes_up_keeps_nothing(settings):
    """Its run has another holder by then, whose lease and checkpoints stay as they are."""

    def work():
        with resumable_run("mine", "fit", settings, {}) as this:
            mine = find_lease("mine")
            replace(mine, host="elsewhere", taken=mine.taken + 100).write()
            other = find_lease("mine")
            this.lease.renew()
            assert find_lease("mine") == other
            this.save("fold-1", {})

    said = "the run 'mine' was taken from this process, .* on elsewhere computes it since"
    with pytest.raises(FlowError, match=said):
        work()
    assert find_lease("mine").host == "elsewhere"
    assert find_lease("mine").held
    assert PartialResults.of_run("mine").keys() == []


def test_rows_that_cannot_be_read_are_no_reason_to_lose_what_is_known(settings):
    def work():
        seldom = replace(settings, checkpoint=1e6)
        with resumable_run("mine", "fit", seldom, {}) as this, this.fit() as keeper:
            keeper.offer(Checkpoint())
            raise StorageError("a chunk")

    with pytest.raises(StorageError, match="a chunk"):
        work()
    assert Checkpoints.of_run("mine").numbers == [1]


def test_a_damaged_part_is_named_and_computed_again(settings, diary):
    with resumable_run("mine", "fit", settings, {}) as this:
        this.save("fold-1", {"score": 1.0})
        path = PartialResults.of_run("mine").path("fold-1") / "record.json"
        path.write_text(path.read_text().replace("1.0", "2.0"))
        assert this.find("fold-1") is None
    (note,) = diary.notes
    assert "`record.json` in" in note
    assert note.endswith("It is computed again")
