"""Histories of refreshes: old runs are pruned, what they use stays, and damage is named."""

import shutil

import pytest
from shop import QUICK_FILE, killed_at, open_shop, refreshed, write_part

from flows.errors import FlowError
from flows.results.refresh import RefreshResult
from flows.runs.published import History
from flows.services.leases import hold_lease
from storage import (
    dataset_path,
    lease_path,
    list_runs,
    load_model,
    model_hash,
    publish_run,
    run_folder,
    saved_run_path,
)
from storage.refreshes import record_paths

FIT = ("fit", "shop", "-q", 1, "--criterion", "dependence", "--sigma", "median", "--plain")
KEEP_TWO = QUICK_FILE.replace("[refresh]\n", "[refresh]\nkeep = 2\n")


@pytest.fixture
def run_file(tmp_path):
    return open_shop(tmp_path, KEEP_TWO)


def _saved():
    """Return the numbers of the runs of the history that have files."""
    return {name[-1] for name in History("sales").runs if saved_run_path(name) is not None}


@pytest.mark.long
def test_of_old_runs_a_line_stays(here, run_file):
    refreshed(here, run_file)
    for n in (40, 50):
        write_part(run_file.parent, f"b{n}", n)
        assert refreshed(here, run_file)["state"] == "published"
    assert _saved() == {"2", "3"}
    assert not run_folder("sales-0001").exists()
    listed = here("history", "sales", "-o", run_file.parent / "h.html").out
    lines = [line.split() for line in listed.splitlines() if "sales-000" in line]
    assert [line[-1] for line in lines] == ["(published)", "published", "published"]
    page = (run_file.parent / "h.html").read_text()
    assert page.count("image/svg+xml") == 3  # with the weights of both that have files
    assert "(published)" in page
    assert "`keep` in [refresh]" in here("history", "sales-0001", "--rollback").failed(2)
    unmade = here("history", "sales-0009", "--rollback").failed(2)
    assert "there are sales-0002, sales-0003" in unmade
    assert here("check").status == 0

    # The published run and the one before it stay, however many suspicious ones come.
    write_part(run_file.parent, "c", 400, shift=30.0)
    for _ in range(2):
        assert here("run", run_file, "--plain", "--force").status == 1
    assert _saved() == {"2", "3", "4", "5"}
    assert History("sales").published == "sales-0003"
    assert here("history", "sales", "--rollback").out.startswith("sales is sales-0002\n")
    assert here("run", run_file, "--plain", "--quiet").status == 1
    assert _saved() == {"2", "4", "5"}
    load_model("sales")


@pytest.mark.long
def test_a_run_of_the_name_of_a_pruned_one_stays(here, run_file):
    for _ in range(3):
        refreshed(here, run_file, "--force")
    assert _saved() == {"2", "3"}
    assert here(*FIT, "--run", "sales-0001").status == 0
    own = model_hash("sales-0001")
    refreshed(here, run_file, "--force")
    assert model_hash("sales-0001") == own


@pytest.mark.long
@pytest.mark.parametrize("moment", ["write_record", "remove_run"])
def test_a_killed_pruning_is_completed_by_the_next(here, run_file, moment):
    run_file.write_text(QUICK_FILE)
    for _ in range(3):
        refreshed(here, run_file, "--force")
    code = "from flows.runs.published import History\nHistory('sales').prune(2)\n"
    killed_at(f"flows.runs.published.{moment}", code)
    assert _saved() == {"1", "2", "3"}
    assert here("check").status == 0
    run_file.write_text(KEEP_TWO)
    assert refreshed(here, run_file)["state"] == "unchanged"
    assert _saved() == {"2", "3"}


def test_what_belongs_to_refreshes_is_removed_by_force_only(here, run_file):
    refreshed(here, run_file)
    assert "refreshes fit 'sales' to 'shop'" in here("remove", "shop").failed(1)
    assert dataset_path("shop").exists()
    assert here("remove", "shop", "--force").status == 0
    assert not dataset_path("shop").exists()
    assert refreshed(here, run_file)["state"] == "unchanged"
    write_part(run_file.parent, "b", 40)
    assert refreshed(here, run_file)["rows"] == 440
    assert "is what refreshes publish" in here("remove", "sales").failed(1)
    assert "belongs to the refreshes of 'sales'" in here("remove", "sales-0001").failed(1)
    assert here("remove", "sales-0001", "--force").status == 0
    assert saved_run_path("sales-0001") is None
    assert here("remove", "sales", "--force").status == 0
    assert refreshed(here, run_file)["state"] == "published"
    assert here(*FIT, "--run", "sales", "--force").status == 0
    assert History("sales").published is None
    assert refreshed(here, run_file)["run"] == "sales-0004"
    assert History("sales").published == "sales-0004"
    write_part(run_file.parent, "c", 900)  # too many rows at once
    for run in ("sales-0005", "sales-0006"):
        assert f"{run} is not published" in here("run", run_file, "--plain").err
        assert here("remove", run, "--force").status == 0


def test_a_check_names_what_a_history_lacks(here, run_file):
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 40)
    refreshed(here, run_file)
    listed = here("check", "sales", "--json").answer["checked"]
    assert [(each["kind"], each["problems"]) for each in listed] == [("run", []), ("history", [])]
    shutil.rmtree(run_folder("sales-0001"))
    ended = here("check")
    assert ended.status == 1
    assert f"{run_folder('sales-0001')}: the run is missing" in ended.out
    assert here(*FIT, "--run", "sales", "--force").status == 0
    assert f"{run_folder('sales')}: the published run is none of" in here("check", "sales").out
    shutil.rmtree(run_folder("sales"))
    assert f"{run_folder('sales')}: the published run is missing" in here("check", "sales").out
    assert here("history", "sales-0002", "--rollback").status == 0
    assert here("remove", "sales-0002", "--force").status == 0
    assert "published run" not in here("check", "sales").out


def test_data_sets_and_runs_are_removed_by_their_names(here, fitted_wine):
    publish_run(fitted_wine, "wine")
    both = "'wine' is a data set and a run: remove data:wine or run:wine"
    assert both in here("remove", fitted_wine, "wine").failed(2)
    removed = here("remove", fitted_wine, "run:wine", "--json").answer["paths"]
    assert removed == [str(run_folder(name)) for name in (fitted_wine, "wine")]
    assert list_runs() == ()
    assert here("remove", "wine", "wine").out == f"removed {dataset_path('wine')}\n"
    for name in (fitted_wine, "run:wine", "../x"):
        assert f"neither a data set nor a run {name!r}" in here("remove", name).failed(2)
    with hold_lease("busy", "fit", {}, lambda: True):
        assert "computes it since" in here("remove", "busy", "--force").failed(1)
        assert lease_path("busy").exists()
    split = dataset_path("mnist-train")
    split.mkdir(parents=True)
    with hold_lease("busy", "fit", {"dataset": "mnist", "split": "train"}, lambda: True):
        assert "reads 'mnist-train': stop it first" in here("remove", split.name).failed(1)


def test_a_process_that_has_lost_the_lease_publishes_nothing(fitted_wine):
    def check():
        raise FlowError("taken over")

    with pytest.raises(FlowError, match="taken over"):
        History("sales", check).publish(fitted_wine)
    assert saved_run_path("sales") is None


def test_a_record_is_written_alone_and_one_like_the_last_takes_its_place(here):
    history = History("sales")
    for state in ("published", "unchanged", "unchanged"):
        history.add(RefreshResult(name="sales", state=state, run="sales-0001"))
        files = {each: each.read_bytes() for each in record_paths("sales").values()}
    assert [(each.state, each.times) for each in History("sales").records] == [
        ("published", 1),
        ("unchanged", 2),
    ]
    history.fail("no disk")
    after = {each: each.read_bytes() for each in record_paths("sales").values()}
    assert files.items() < after.items()
