"""Histories, of refreshed and of dated runs: old runs are pruned, the newest is published."""

import shutil
from datetime import UTC, datetime

import pytest
from shop import QUICK_FILE, killed_at, open_shop, refreshed, write_part
from support import interrupted

from flows.results.refresh import refresh_records
from flows.runs.published import History, publish_newest
from flows.services.leases import hold_lease
from storage import (
    DamagedStore,
    dataset_path,
    lease_path,
    list_runs,
    load_model,
    model_hash,
    open_run,
    publish_run,
    run_folder,
    saved_run_path,
    write_history,
)

DEPENDENCE = ("--criterion", "dependence", "--sigma", "median", "--plain")
FIT = ("fit", "shop", "-q", 1, *DEPENDENCE)
KEEP_TWO = QUICK_FILE + "\n[refresh]\nkeep = 2\n"


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
    assert page.count("image/svg+xml") == 3  # with the weights of all three
    assert "(published)" in page
    assert "`keep` in [refresh]" in here("rollback", "sales-0001").failed(2)
    assert "there are sales-0002, sales-0003" in here("rollback", "sales-0009").failed(2)
    assert here("check").status == 0

    # The published run and the one before it stay, however many suspicious ones come.
    write_part(run_file.parent, "c", 400, shift=30.0)
    for _ in range(2):
        assert here("refresh", run_file, "--plain", "--force").status == 1
    assert _saved() == {"2", "3", "4", "5"}
    assert History("sales").published == "sales-0003"
    assert here("rollback", "sales").out.startswith("sales is sales-0002\n")
    assert here("refresh", run_file, "--plain", "--quiet").status == 1
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
@pytest.mark.parametrize("moment", ["write_history", "remove_run"])
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
    assert "`ism-dask refresh` fits 'sales' to 'shop'" in here("remove", "shop").failed(1)
    assert dataset_path("shop").exists()
    assert here("remove", "shop", "--force").status == 0
    assert not dataset_path("shop").exists()
    assert refreshed(here, run_file)["state"] == "unchanged"
    write_part(run_file.parent, "b", 40)
    assert refreshed(here, run_file)["rows"] == 440
    assert "is what `ism-dask refresh` publishes" in here("rm", "sales").failed(1)
    assert "belongs to the refreshes of 'sales'" in here("rm", "sales-0001").failed(1)
    assert here("rm", "sales-0001", "--force").status == 0
    assert saved_run_path("sales-0001") is None


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
    assert here("rollback", "sales-0002").status == 0
    assert "published run" not in here("check", "sales").out


def _night(here, *options):
    """Fit W quickly as the run of a night, of which two stay; return its name."""
    words = ("fit", "wine", "-q", 1, "--max-iter", 1, *DEPENDENCE, "--json")
    answer = here(*words, "--run", "night", "--keep-runs", 2, *options).answer
    assert "error" not in answer, answer
    return str(answer["run"])


def test_each_run_is_kept_under_its_date_and_the_newest_is_copied(here):
    first, second = _night(here), _night(here, "--seed", 1)
    assert first == f"night-{datetime.now(UTC):%Y-%m-%d}"
    assert second == f"{first}-2"
    assert open_run("night").copy_of == second
    assert load_model("night").config["seed"] == 1
    # An unfinished run that is older than those that stay is removed, too.
    run_folder("night-2020-01-01").mkdir()
    third = _night(here)
    assert (open_run("night").copy_of, third) == (third, f"{first}-3")
    assert {each.name for each in list_runs()} == {"night", second, third}
    assert not run_folder("night-2020-01-01").exists()
    assert f"night is a copy of {third}" in here("runs").out
    listed = here("history", "night", "--json").answer["refreshes"]
    nights = [(night, "published", night == first) for night in (first, second, third)]
    assert [(each["run"], each["state"], each["pruned"]) for each in listed] == nights
    assert here("rollback", "night").out == f"night is {second}\n"
    assert load_model("night").config["seed"] == 1
    assert here("rollback", third).out == f"night is {third}\n"
    assert here("check").status == 0
    assert here("show", "night").status == 0
    # A night that is resumed late does not take the place of a later one.
    publish_run(second, "night-2020-01-01")
    publish_newest("night-2020-01-01", 9)
    assert open_run("night").copy_of == third


def test_another_run_of_the_name_is_not_replaced(here, fitted_wine):
    publish_run(fitted_wine, "night")
    words = ("fit", "wine", "--plain", "--keep-runs", 2)
    message = here(*words, "--run", "night").failed(1)
    assert "is no copy of a dated one; remove it with `ism-dask rm night`" in message
    assert _night(here, "--force") == open_run("night").copy_of
    with hold_lease("night-2020-01-01", "fit", {}, lambda: True):
        refused = here(*words, "--run", "night").failed(1)
    assert "the run 'night-2020-01-01' is being computed" in refused
    assert "`--keep-runs` is 2, but `--run` is not given" in here(*words).failed(2)


def test_an_interrupted_night_is_resumed_under_its_date(here, monkeypatch):
    words = ("crossval", "wine", "--folds", 2, "--max-iter", 1, *DEPENDENCE)
    with monkeypatch.context() as patch:
        patch.setattr("flows.runs.crossval.Crossval.save", interrupted)
        assert here(*words, "--run", "night", "--keep-runs", 2).status == 130
    (unfinished,) = here("runs", "--json").answer["unfinished"]
    assert unfinished["name"] == f"night-{datetime.now(UTC):%Y-%m-%d}"
    assert here("resume", unfinished["name"], "--plain").status == 0
    assert open_run("night").copy_of == unfinished["name"]


def test_a_published_run_is_removed_by_force_only(here):
    night = _night(here)
    message = here("rm", "night").failed(1)
    assert f"'night' is published: it is a copy of {night!r}" in message
    assert here("rm", "night", "--force").out == f"removed {run_folder('night')}\n"
    assert [each.name for each in list_runs()] == [night]
    assert here("rm", night).status == 0
    assert list_runs() == ()
    assert "no run 'night' is saved" in here("rm", "night").failed(2)
    assert "`run` is '../x'" in here("rm", "../x").failed(2)
    with hold_lease("busy", "fit", {}, lambda: True):
        assert "computes it since" in here("rm", "busy", "--force").failed(1)
        assert lease_path("busy").exists()


@pytest.mark.parametrize(
    "record",
    [
        {"state": 7, "rows": "many"},
        {"name": "sales", "state": "published", "time": "yesterday"},
        {"name": "sales", "state": "published", "time": "2026-11-28T02:00:00"},
        {"name": "sales", "state": "published", "components": [[0.6, 0.8]], "columns": ["a"]},
    ],
)
def test_a_history_of_other_records_is_damage(monkeypatch, tmp_path, record):
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path))
    write_history("sales", [record])
    with pytest.raises(DamagedStore, match="not the records that were written"):
        refresh_records("sales")


def test_a_refresh_of_a_process_that_is_none_has_ended(here):
    write_history("sales", [{"name": "sales", "state": "begun", "process": {"pid": 2**40}}])
    assert "ended without a word" in here("history", "sales").out
    assert "no process computes" in here("cancel", "sales").failed(2)
