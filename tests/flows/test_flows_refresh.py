"""Refreshes: a table that changes is fitted again, compared, and published if it is sound."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from commandline import Command
from numpy.testing import assert_allclose, assert_array_equal
from prefect.filesystems import RemoteFileSystem
from scipy.linalg import subspace_angles
from serving import Serving
from shop import RUN_FILE, open_shop, refreshed, write_part
from support import artifacts_of
from waiting import wait

from flows.refreshes.published import published_run
from ism_dask import hsic
from ism_dask.kernels import Gaussian
from storage import home, load_model, model_hash, open_dataset, read_history
from storage.records import to_sealed_json


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return open_shop(tmp_path)


@pytest.mark.long
def test_only_what_has_changed_is_fitted_again_from_the_last_w(
    here: Command, run_file: Path
) -> None:
    first = refreshed(here, run_file)
    assert (first["state"], first["run"]) == ("published", "sales-0001")
    assert first["comparison"] is None
    assert first["written"] == [str(run_file.parent / name) for name in ("new.csv", "sales.html")]
    again = refreshed(here, run_file)
    assert (again["state"], again["run"]) == ("unchanged", "sales-0001")
    # So does a setting that decides no number.
    run_file.write_text(RUN_FILE.replace("[fit]", "[fit]\nstall = 60\ncheckpoint = 5"))
    assert refreshed(here, run_file)["state"] == "unchanged"
    assert refreshed(here, run_file, "--force")["run"] == "sales-0002"
    before = load_model("sales")
    write_part(run_file.parent, "b", 40)
    grown = refreshed(here, run_file)
    assert (grown["state"], grown["run"], grown["rows"]) == ("published", "sales-0003", 440)
    after = load_model("sales")
    assert_array_equal(after.components, load_model("sales-0003").components)
    assert after.config["start_from"] == "sales"
    _compared_by_the_definition(grown["comparison"], before, after)
    ended = here("history", "sales", "-o", run_file.parent / "h.html")
    assert "sales-0003 *" in ended.out
    page = (run_file.parent / "h.html").read_text()
    assert page.count("<svg") == 3
    assert "new feature 2" in page


def _compared_by_the_definition(comparison: dict[str, Any], before: Any, after: Any) -> None:
    """Check the comparison of two models of the same columns against what its fields mean."""
    data = open_dataset("shop")
    X, y = np.asarray(data.X.read(0, len(data.X)), dtype=float), data.labels["churned"]
    ratio = after.scale / before.scale
    old, new = (before.components * ratio).T, after.components.T
    assert comparison["turn"] == pytest.approx(np.sin(subspace_angles(old, new)[0]), abs=1e-6)
    standardised = (X - after.mean) / after.scale
    kernel = Gaussian(after.metrics["fitted_kernel"]["sigma"])
    J = [hsic(standardised @ W, y, kernel=kernel) for W in (np.linalg.qr(old)[0], new)]
    assert comparison["objective_ratio"] == pytest.approx(J[1] / J[0], rel=1e-6)
    learned = before.transform(X[:400])
    shift = (before.transform(X).mean(axis=0) - learned.mean(axis=0)) / learned.std(axis=0)
    assert_allclose([each["mean_shift"] for each in comparison["drift"]], shift, atol=1e-6)
    means = np.sort(np.abs((after.mean - before.mean) / before.scale))[::-1]
    assert_allclose([abs(each["mean_shift"]) for each in comparison["columns"]], means, atol=1e-9)


@pytest.mark.long
def test_a_suspicious_run_is_kept_but_not_published(here: Command, run_file: Path) -> None:
    refreshed(here, run_file)
    published = model_hash("sales")
    write_part(run_file.parent, "b", 400, shift=30.0)
    ended = here("refresh", run_file, "--plain")
    assert ended.status == 1
    assert "the mean of the column 'x' has moved by +1" in ended.err
    assert "ism-dask rollback sales-0002" in ended.err
    assert model_hash("sales") == published
    assert load_model("sales-0002").components.shape == (2, 5)
    # As long as the source stays so, each refresh says so.
    assert here("refresh", run_file, "--plain", "--quiet").status == 1
    assert [each["state"] for each in read_history("sales")] == [
        "published", "suspicious", "suspicious",
    ]  # fmt: skip
    limits = "\n[refresh]\nmax_turn = 1.0\nmax_shift = 100.0\nmax_outside = 1.0\n"
    run_file.write_text(RUN_FILE + limits)
    ended = refreshed(here, run_file, "--force")
    assert (ended["state"], ended["reasons"]) == ("published", [])


@pytest.mark.long
def test_a_rollback_publishes_an_earlier_run(here: Command, run_file: Path) -> None:
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 40)
    refreshed(here, run_file)
    assert here("rollback", "sales").out == "sales is sales-0001\n"
    assert published_run("sales") == "sales-0001"
    assert model_hash("sales") == model_hash("sales-0001")
    assert "no run of 'sales' was published before" in here("rollback", "sales").failed(1)
    assert here("rollback", "sales-0002").status == 0
    assert published_run("sales") == "sales-0002"
    assert "there are sales-0001, sales-0002" in here("rollback", "sales-0003").failed(2)
    assert "no run of a refresh" in here("rollback", "other").failed(2)
    assert "did you mean 'sales'" in here("history", "salse").failed(2)


def test_other_columns_are_named(here: Command, run_file: Path) -> None:
    refreshed(here, run_file)
    write_part(run_file.parent, "a", 400, columns="vwxyu")
    ended = here("refresh", run_file, "--plain", "--json")
    assert ended.status == 1
    comparison = read_history("sales")[-1]["comparison"]
    assert (comparison["added"], comparison["dropped"]) == (["u"], ["z"])
    assert "the data lack columns: z" in ended.err
    assert load_model("sales-0002").config["start_from"] is None


@pytest.mark.parametrize(
    ("text", "instead", "message"),
    [
        (
            "[fit]\nn_components = 2",
            "[cluster]\nn_clusters = 2",
            "a refresh needs the table [fit]",
        ),
        ('source = "parts/*.parquet"\nname = "shop"', 'source = "wine"', "needs the table [fit]"),
        ('run = "sales"', "", "a refresh needs `run`"),
        ("[[tr", "[refresh]\nmax_turn = 2.0\n[[tr", "is 2.0; expected 1"),
    ],
)
def test_files_that_cannot_be_refreshed(
    here: Command, run_file: Path, text: str, instead: str, message: str
) -> None:
    run_file.write_text(RUN_FILE.replace(text, instead))
    assert message in here("refresh", run_file, "--plain").failed(2)


def test_a_run_of_that_name_that_no_refresh_made_stays(here: Command, run_file: Path) -> None:
    assert here("run", run_file, "--plain").status == 0
    saved = model_hash("sales")
    assert "which no refresh has published" in here("refresh", run_file, "--plain").failed(1)
    assert model_hash("sales") == saved


# Where a process is killed: in the ingestion, the fit, the comparison, and around the publication.
_MOMENTS = {
    "storage.table_ingestion._store_table": "sales-0001",
    "flows.refreshes.refresh.fit_and_save": "sales-0001",
    "flows.refreshes.refresh.compare": "sales-0001",
    "storage.runs.shutil.copytree": "sales-0001",
    "flows.refreshes.refresh.write_outputs": "sales-0002",
    "flows.refreshes.refresh.add_to_history": "sales-0002",
    "flows.refreshes.refresh.prune": "sales-0002",
}


@pytest.mark.long
@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_killed_refresh_leaves_a_whole_run_published(
    here: Command, run_file: Path, moment: str
) -> None:
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 40)
    code = (
        "import os, pkgutil, sys\n"
        f"owner, _, name = {moment!r}.rpartition('.')\n"
        "setattr(pkgutil.resolve_name(owner), name, lambda *a, **k: os._exit(9))\n"
        "from flows.refreshes.refresh import refresh\n"
        "from flows.settings.refresh import RefreshSettings\n"
        f"refresh(RefreshSettings(file={str(run_file)!r}))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    hashes = {name: model_hash(name) for name in ("sales-0001", "sales-0002")}
    assert model_hash("sales") == hashes[_MOMENTS[moment]]
    load_model("sales")
    assert here("check").status == 0
    result = refreshed(here, run_file)
    ended = "unchanged" if moment.endswith("prune") else "published"
    assert (result["state"], result["run"]) == (ended, "sales-0002")
    assert published_run("sales") == "sales-0002"
    runs = dict.fromkeys(each["run"] for each in read_history("sales"))
    assert list(runs) == ["sales-0001", "sales-0002"]


def test_two_refreshes_at_once_are_refused(here: Command, run_file: Path) -> None:
    refreshed(here, run_file)
    code = (
        "import sys\n"
        "from storage import refresh_lock\n"
        "with refresh_lock('sales'):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert "another process refreshes 'sales'" in here("refresh", run_file, "--plain").failed(1)
        holder.communicate("")


def test_a_damaged_history_is_named(here: Command, run_file: Path) -> None:
    refreshed(here, run_file)
    path = home() / "refreshes" / "sales" / "history.json"
    text = path.read_text()
    later = to_sealed_json({"format_version": 7, "refreshes": []})
    for damaged in ("{", "[]", text[:-20], text.replace("400", "401"), later):
        path.write_text(damaged)
        assert str(path) in here("refresh", run_file, "--plain").failed(1)
        ended = here("check", "sales")
        assert ended.status == 1
        assert str(path) in ended.out


@pytest.mark.long
@pytest.mark.usefixtures("prefect_server")
def test_a_refresh_under_prefect_ends_in_a_state_with_its_name(
    here: Command, run_file: Path, serving: Serving
) -> None:
    for state, kind in (("Published", "COMPLETED"), ("Unchanged", "COMPLETED")):
        answer = here("refresh", run_file, "--json").answer
        assert answer["state"] == state.lower()
        run = serving.run(answer["flow_run"]["id"])
        assert (run["state"]["name"], run["state"]["type"]) == (state, kind)
    page = artifacts_of(run["id"])["refresh-sales"].data
    assert r"| sales-0001 \* |" in page
    write_part(run_file.parent, "b", 400, shift=30.0)
    ended = here("refresh", run_file)
    assert ended.status == 1
    assert "sales-0002 is not published: " in ended.err
    run = serving.run(ended.out.splitlines()[0].rpartition("/")[2])
    assert (run["state"]["name"], run["state"]["type"]) == ("Suspicious", "FAILED")
    assert "the mean of the column 'x' has moved" in run["state"]["message"]
    # What an automation acts on.
    about = {"resource": {"id": ["ism-dask.run.sales"]}}
    wait(lambda: len(serving.events(**about)) == 3)
    names = sorted(each["event"] for each in serving.events(**about))
    assert names == [
        f"ism-dask.refresh.{each}" for each in ("published", "suspicious", "unchanged")
    ]


@pytest.mark.long
@pytest.mark.usefixtures("prefect_server")
def test_a_prefect_block_has_the_credentials(
    here: Command, run_file: Path, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has none: only the block knows the server and the key."""
    s3 = boto3.client("s3")
    write_part(run_file.parent, "a", 400)
    part = run_file.parent / "parts/a.parquet"
    s3.upload_file(str(part), lake.removeprefix("s3://"), "a.parquet")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {"key": "of-the-block", "secret": "kept-in-the-block", "endpoint_url": endpoint}
    RemoteFileSystem(basepath=lake, settings=settings).save("lake")
    words = ("ingest", f"{lake}/a.parquet", "--name", "far", "--label", "churned")
    assert "leave out --plain" in here(*words, "--credentials", "lake", "--plain").failed(2)
    assert "no such block" in here(*words, "--credentials", "pond").err
    assert here(*words, "--credentials", "remote-file-system/lake", "--json").answer["rows"] == 400
    text = RUN_FILE.replace("parts/*.parquet", f"{lake}/*.parquet")
    run_file.write_text(text.replace('name = "shop"', 'name = "shop"\ncredentials = "lake"'))
    assert here("refresh", run_file, "--json").answer["state"] == "published"
    stored = [path for path in home().rglob("*") if path.is_file()]
    assert not any(b"kept-in-the-block" in path.read_bytes() for path in stored)


@pytest.mark.usefixtures("prefect_server")
def test_a_schedule_is_replaced_by_the_next(
    here: Command, run_file: Path, serving: Serving
) -> None:
    assert "`--cron` is 'nightly'; expected" in here(
        "schedule", run_file, "--cron", "nightly"
    ).failed(2)
    for cron in ("0 2 * * *", "30 3 * * 1"):
        answer = here("schedule", run_file, "--cron", cron, "--json").answer
        assert (answer["name"], answer["cron"]) == ("sales", cron)
        deployment = serving.get("deployments/name/refresh/sales")
        assert answer["url"].endswith(deployment["id"])
        (schedule,) = deployment["schedules"]
        assert schedule["schedule"]["cron"] == cron
        assert deployment["parameters"] == {"settings": {"file": str(run_file)}}
        # The worker copies no folder; it starts beside the run file.
        (step,) = deployment["pull_steps"]
        assert [*step.values()] == [{"directory": str(run_file.parent)}]
        assert deployment["path"] is None
        # The flow itself lets one run compute at a time.
        assert deployment["global_concurrency_limit"] is None
