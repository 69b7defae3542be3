"""Refreshes: a table that changes is fitted again, compared, and published if it is sound."""

import getpass
import json
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from daskparts import ran
from numpy.testing import assert_array_equal
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from scipy.linalg import subspace_angles
from shop import (
    BAD,
    QUICK_FILE,
    RUN_FILE,
    WITHOUT_PAGE,
    change_part,
    killed_at,
    open_shop,
    refreshed,
    write_part,
)
from waiting import SilentHandler, served, wait

from flows.errors import SettingsError
from flows.refreshes.comparison import doubts
from flows.refreshes.history import history_summary, known_history
from flows.refreshes.refresh import check_refreshable, refresh
from flows.runs.published import History
from flows.settings.refresh import RefreshSettings
from flows.settings.run_file import read_run_file
from ism_dask.status import Status
from storage import dataset_path, home, load_model, model_hash, open_dataset, publish_run
from storage.records import to_sealed_json
from storage.runs import run_folder

NIGHTLY = ("--cron", "0 2 * * *")
FIT = ("fit", "shop", "-q", 1, "--criterion", "dependence", "--kernel", "polynomial", "--plain")


@pytest.fixture
def run_file(tmp_path):
    return open_shop(tmp_path, QUICK_FILE)


def _states():
    return [each.state for each in History("sales").records]


@pytest.mark.long
def test_only_what_has_changed_is_fitted_again_from_the_last_w(here, run_file):
    run_file.write_text(RUN_FILE)
    first = refreshed(here, run_file)
    assert (first["state"], first["run"]) == ("published", "sales-0001")
    assert first["comparison"] is None
    assert first["written"] == [str(run_file.parent / name) for name in ("new.csv", "sales.html")]
    again = refreshed(here, run_file)
    assert (again["state"], again["run"]) == ("unchanged", "sales-0001")
    # So does a setting that decides no number.
    run_file.write_text(RUN_FILE.replace("[fit]", "[fit]\nstall = 60\ncheckpoint = 5"))
    assert refreshed(here, run_file)["state"] == "unchanged"
    equal = refreshed(here, run_file, "--force")
    # Nothing has fallen, and the limit stands there once.
    falls = [each for each in equal["comparison"]["checks"] if each["limit"] == "max_fall"]
    assert (equal["run"], [each["value"] for each in falls]) == ("sales-0002", [0.0])
    before = load_model("sales")
    write_part(run_file.parent, "b", 40)
    grown = refreshed(here, run_file)
    assert (grown["state"], grown["run"], grown["rows"]) == ("published", "sales-0003", 440)
    after = load_model("sales")
    assert_array_equal(after.components, load_model("sales-0003").components)
    assert after.config["start_from"] == "sales-0002"
    _compared_by_the_definition(grown["comparison"], before, after)
    ended = here("history", "sales", "-o", run_file.parent / "h.html")
    assert "sales-0003 *" in ended.out
    page = (run_file.parent / "h.html").read_text()
    assert page.count("image/svg+xml") == 3
    assert "new feature 2" in page
    assert '"opening">sales-0003 is published: its features explain ' in page
    assert "% of the label; no check speaks against it.<" in page
    pictures = re.findall('svg\\+xml;base64,([^"]+)"', page)
    # Dates below the pictures.
    assert all(f"{datetime.now(UTC):%Y-%b-%d}" in b64decode(each).decode() for each in pictures)


@pytest.mark.parametrize("predicts", [True, False])
def test_a_fit_that_ended_as_it_should_is_not_suspicious(predicts):
    sound = {Status.CONVERGED, Status.TOLERANCE, Status.NOISE, Status.START, Status.APPROXIMATE}
    sound |= {Status.MAX_ITER} if predicts else set()
    for status in Status:
        expected = () if status in sound else (f"the fit did not converge ({status.value})",)
        assert doubts(SimpleNamespace(status=status.value, predicts=predicts), None) == expected


def test_a_refresh_opens_the_rows_and_each_model_once(here, run_file, monkeypatch):
    monkeypatch.setattr("flows.reports.pictures.svg_document", lambda *_: "<svg/>")
    run_file.write_text('report = "sales.html"\n' + QUICK_FILE + RUN_FILE[RUN_FILE.index("[[") :])
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 40)
    opened, is_on = Counter(), True
    sys.addaudithook(
        lambda kind, given: is_on and kind == "open" and opened.update([str(given[0])])
    )
    result = refreshed(here, run_file)
    is_on = False
    assert result["written"] == [str(run_file.parent / name) for name in ("new.csv", "sales.html")]
    # The published model is read to compare with it, the other to copy it.
    files = [run_folder(run) / "result" / "arrays.bin" for run in ("sales", result["run"])]
    files.append(dataset_path("shop") / "X" / "c.0.0")
    assert [opened[str(path)] for path in files] == [1, 1, 1]


def _compared_by_the_definition(comparison, before, after):
    """Check the comparison of two models of the same columns against what its fields mean."""
    data = open_dataset("shop")
    X, y = np.asarray(data.X.read(0, len(data.X)), dtype=float), data.labels["churned"]
    old, new = (Z - Z.mean(axis=0) for Z in (before.transform(X), after.transform(X)))
    basis = np.linalg.qr(new)[0]
    sines = np.linalg.norm(old - basis @ (basis.T @ old), axis=0) / np.linalg.norm(old, axis=0)
    lost = np.array([each["lost"] for each in before.metrics["contributions"]])
    assert comparison["turn"] == pytest.approx((sines * lost / lost.max()).max(), abs=1e-4)
    now, by_published = (_explained(each.transform(X), y) for each in (after, before))
    assert comparison["explained"] == pytest.approx(now, abs=1e-3)
    assert comparison["explained_before"] == pytest.approx(
        _explained(before.transform(X[:400]), y[:400]), abs=1e-3
    )
    assert comparison["gain"] == pytest.approx(now / by_published, abs=5e-3)


def _explained(Z, y):
    """Return the share of classes that the nearest neighbours in Z explain, by its definition."""
    k = round(len(Z) ** 0.5)
    Y = np.eye(2)[y]
    apart = ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    means = Y[np.argsort(apart, axis=1)[:, :k]].mean(axis=1)
    loss, total = ((Y - means) ** 2).sum(), ((Y - Y.mean(axis=0)) ** 2).sum()
    return float(1 - loss / (1 + 1 / k) / total)


@pytest.mark.long
def test_bad_data_are_not_published_and_a_small_drift_is(here, run_file):
    refreshed(here, run_file)
    published, part = model_hash("sales"), run_file.parent / "parts" / "a.parquet"
    good = part.read_bytes()
    for change, words in BAD.values():
        part.write_bytes(good)
        change_part(run_file.parent, "a", change)
        ended = here("run", run_file, "--plain")
        assert ended.status == 1
        assert words in ended.err
        assert model_hash("sales") == published
    # The last of them has other columns, but the same W as the published one.
    record = History("sales").records[-1]
    assert (record.comparison.added, record.comparison.dropped) == (("why", "zed"), ("y", "z"))
    assert (record.model_hash, History("sales").published) == (published, "sales-0001")
    assert load_model(record.run).config["start_from"] is None
    part.write_bytes(good)
    change_part(run_file.parent, "a", lambda frame, _: frame.assign(x=frame["x"] + 0.1))
    assert refreshed(here, run_file)["state"] == "published"
    page = here("history", "sales", "-o", run_file.parent / "h.md")
    assert "max_class_changes: classes of the label: new maybe, expected at most 0" in page.out


@pytest.mark.long
def test_a_suspicious_run_is_kept_but_not_published(here, run_file):
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 400, shift=3.0)
    ended = here("run", run_file, "--plain")
    assert ended.status == 1
    assert "max_rows: there are 2 times as many rows as before (800, before 400)" in ended.err
    assert "max_shift: the mean of x has moved from 0.07253 to 1.573, by 1.52" in ended.err
    assert "ism-dask history sales-0002 --rollback" in ended.err
    # As long as the source stays so, each refresh says so.
    assert here("run", run_file, "--plain", "--quiet").status == 1
    records = [(each.state, each.times) for each in History("sales").records]
    assert records == [("published", 1), ("suspicious", 2)]
    opening = history_summary(known_history("sales")).opening
    assert opening.startswith("sales-0001 is published; ")
    assert opening.endswith(" 2 warnings speak against it.")
    History("sales").fail("the disk is full")
    assert here("run", run_file, "--plain", "--quiet").status == 1
    assert History("sales").records[-1].times == 1
    # Unless somebody has published that run.
    here("history", "sales-0002", "--rollback")
    now = refreshed(here, run_file)
    assert (now["state"], now["times"]) == ("unchanged", 1)
    limits = "[refresh]\nmax_turn = 1.0\nmax_rows = 9.0\nmax_shift = 9.0\n"
    run_file.write_text(QUICK_FILE.replace("[refresh]\n", limits))
    ended = refreshed(here, run_file, "--force")
    assert (ended["state"], ended["reasons"]) == ("published", [])


def test_each_of_several_labels_is_judged(here, run_file):
    names = '["one", "two"]\ndrop = "churned"'
    run_file.write_text(QUICK_FILE.replace('"churned"', names))
    known = {"one": lambda frame: 9 * frame["v"], "two": lambda frame: frame["w"]}
    change_part(run_file.parent, "a", lambda frame, _: frame.assign(**known))
    refreshed(here, run_file)
    change_part(run_file.parent, "a", lambda frame, rng: frame.assign(two=rng.random(len(frame))))
    ended = here("run", run_file, "--plain")
    words = "max_fall: the rows of the published run predict"
    assert (ended.status, words in ended.err) == (1, True)
    run_file.write_text(QUICK_FILE.replace('"churned"', names.replace('"one", ', "")))
    assert "max_fall: " in here("run", run_file, "--plain").err  # of other labels than before


@pytest.mark.long
def test_a_rollback_publishes_an_earlier_run(here, run_file):
    run_file.write_text(WITHOUT_PAGE)
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 40)
    refreshed(here, run_file)
    before = (run_file.parent / "new.csv").read_text()
    ended = here("history", "sales", "--rollback", "--json").answer
    assert (ended["state"], ended["run"], ended["reasons"]) == ("rolled back", "sales-0001", [])
    assert ended["by"] == getpass.getuser()
    # What the run file writes is that of the run that is published now.
    assert ended["written"] == [str(run_file.parent / "new.csv")]
    assert (run_file.parent / "new.csv").read_text() != before
    assert History("sales").published == "sales-0001"
    assert model_hash("sales") == model_hash("sales-0001")
    first = here("history", "sales", "--rollback").failed(1)
    assert "'sales' has no earlier published run to go back to" in first
    # Without the run file, or with a table that the earlier run cannot read, they are stale.
    run_file.rename(run_file.parent / "moved.toml")
    ended = here("history", "sales-0002", "--rollback")
    stale = "sales-0002 is published, but outputs of the run file are stale: "
    assert (ended.status, stale in ended.err) == (1, True)
    assert History("sales").published == "sales-0002"
    unmade = here("history", "sales-0003", "--rollback").failed(2)
    assert "there are sales-0001, sales-0002" in unmade
    assert "no run of a refresh" in here("history", "other", "--rollback").failed(2)
    assert "did you mean 'sales'" in here("history", "salse").failed(2)
    run_file.with_name("moved.toml").rename(run_file)
    assert refreshed(here, run_file)["state"] == "unchanged"
    assert (run_file.parent / "new.csv").read_text() == before
    assert _states() == ["published", "published", "rolled back", "rolled back", "unchanged"]
    # Pictures have each run once.
    drawn = [each.run for each in History("sales").records if each.made_run]
    assert drawn == ["sales-0001", "sales-0002"]


@pytest.mark.long
def test_nights_of_one_distribution_are_published_with_a_feature_that_says_little(here, run_file):
    """The second feature is free to turn: J loses next to nothing without it."""
    turned = []
    for night in range(6):
        rng = np.random.default_rng(night)
        frame = pd.DataFrame(rng.normal(size=(300, 5)), columns=list("vwxyz"))
        frame["churned"] = np.where(frame["v"] + 0.3 * rng.normal(size=300) > 0, "yes", "no")
        frame.to_parquet(run_file.parent / "parts" / "a.parquet")
        published = load_model("sales") if night else None
        assert refreshed(here, run_file)["state"] == "published"
        if published is not None:
            turned.append(_largest_turn(published, load_model("sales")))
    assert max(turned) > 0.85


def _largest_turn(before, after):
    """Return the sine of the largest angle between the new features of the same rows."""
    data = open_dataset("shop")
    X = np.asarray(data.X.read(0, len(data.X)), dtype=float)
    old, new = (each.transform(X) for each in (before, after))
    return np.sin(subspace_angles(old - old.mean(axis=0), new - new.mean(axis=0))[0])


@pytest.mark.long
def test_a_history_holds_every_night(here, run_file):
    part = run_file.parent / "parts" / "a.parquet"
    refreshed(here, run_file)
    for _ in range(2):
        assert refreshed(here, run_file)["state"] == "unchanged"
    good = part.read_bytes()
    part.write_bytes(good[:-100])
    for _ in range(2):
        assert "a.parquet" in here("run", run_file, "--plain").failed(1)
    part.unlink()
    assert here("run", run_file, "--plain").status == 1
    part.write_bytes(good)
    records = History("sales").records
    assert _states() == ["published", "unchanged", "failed", "failed"]
    assert [each.times for each in records] == [1, 2, 2, 1]
    assert "a.parquet" in records[2].reasons[0]
    assert {each.by for each in records} == {getpass.getuser()}
    assert "failed, 2 times" in here("history", "sales").out
    # A file that is wrong is a failed night, too, if a schedule has begun it.
    run_file.write_text("[")
    with pytest.raises(SettingsError):
        refresh(RefreshSettings(file=str(run_file)))
    assert "is no TOML" in History("sales").records[-1].reasons[0]


@pytest.mark.long
def test_stale_outputs_are_written_by_the_next_night(here, run_file):
    text = WITHOUT_PAGE.replace('source = "parts/a.parquet"', 'source = "new.parquet"')
    run_file.write_text(text)
    message = "sales-0001 is published, but outputs of the run file are stale: "
    for _ in range(2):
        ended = here("run", run_file, "--plain")
        assert (ended.status, message in ended.err) == (1, True)
    shutil.copy(run_file.parent / "parts" / "a.parquet", run_file.parent / "new.parquet")
    again = refreshed(here, run_file)
    assert (again["state"], len(again["written"])) == ("unchanged", 1)
    out, more, new = (run_file.parent / name for name in ("new.csv", "more.csv", "new.parquet"))
    pd.read_csv(out).head(7).to_csv(out)
    assert refreshed(here, run_file)["written"] == again["written"]
    assert len(pd.read_csv(out)) == 7  # as they were
    pd.read_parquet(new).head(9).to_parquet(new)
    assert refreshed(here, run_file)["state"] == "unchanged"
    assert len(pd.read_csv(out)) == 9
    more.write_text("of the user")
    run_file.write_text(text + text[text.index("[[") :].replace(out.name, more.name))
    for command in (("run", run_file, "--plain"), ("schedule", run_file, *NIGHTLY)):
        assert f"{more} exists already" in here(*command).failed(2)
    more.unlink()
    for gone in (out, more):
        gone.unlink(missing_ok=True)
        assert refreshed(here, run_file)["written"] == [str(out), str(more)]


@pytest.mark.parametrize(
    ("text", "instead", "message"),
    [
        ("[fit]\nn_components = 2", "[cluster]\nn_clusters = 2", "a refresh needs the table [fit]"),
        ('source = "parts/*.parquet"\nname = "shop"', 'source = "wine"', "needs the table [fit]"),
        ('run = "sales"', "", "a refresh needs `run`"),
        ("[refresh]", "[refresh]\nmax_turn = 2.0", "is 2.0; expected 1"),
        ("[refresh]", "[refresh]\nkeep = 1", "`refresh.keep` is 1; expected 2 or more"),
    ],
)
def test_files_that_cannot_be_refreshed(here, run_file, text, instead, message):
    run_file.write_text(RUN_FILE.replace(text, instead))
    assert message in here("run", run_file, "--plain").failed(2)


def test_a_published_run_belongs_to_one_file(here, run_file):
    refreshed(here, run_file)
    other = run_file.with_name("other.toml")
    other.write_text(QUICK_FILE)
    message = here("run", other, "--plain").failed(2)
    assert f"`run` is 'sales', which is refreshed by {run_file}" in message
    other.write_text(QUICK_FILE.replace("[refresh]", ""))
    assert "sales, which refreshes publish; replace it" in here("run", other, "--plain").failed(1)
    other.write_text(QUICK_FILE)
    run_file.rename(run_file.with_name("moved.toml"))
    assert refreshed(here, other)["state"] == "unchanged"


def test_a_fit_with_other_settings_does_not_start_from_what_the_former_have_chosen(here, run_file):
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 40)
    assert load_model(refreshed(here, run_file)["run"]).config["start_from"] == "sales-0001"
    run_file.write_text(QUICK_FILE.replace('"polynomial"', '"gaussian"\nsigma = 3'))
    here("run", run_file, "--plain")  # that W may turn too far to be published
    model = load_model("sales-0003")
    assert model.config["start_from"] is None
    assert model.metrics["fitted_kernel"] == {"name": "gaussian", "sigma": 3.0}


@pytest.mark.parametrize("name", ["sales", "sales-0001"])
def test_a_run_of_that_name_that_is_another_fit_stays(here, run_file, fitted_wine, name):
    publish_run(fitted_wine, name)
    saved = model_hash(name)
    ended = here("run", run_file, "--plain")
    assert (ended.status, "which no refresh has made" in ended.err) == (1, True)
    assert model_hash(name) == saved


def test_a_fit_to_the_same_table_that_no_refresh_has_made_stays(here, run_file):
    refreshed(here, run_file)
    here(*FIT, "--run", "sales-0002")
    saved = model_hash("sales-0002")
    write_part(run_file.parent, "b", 40)
    assert "which no refresh has made" in here("run", run_file, "--plain").err
    assert model_hash("sales-0002") == saved


def test_a_run_file_refreshes_the_same_from_any_folder(here, run_file, monkeypatch):
    refreshed(here, run_file)
    monkeypatch.chdir(run_file.parent)
    assert refreshed(here, run_file.name)["state"] == "unchanged"


def test_a_data_set_of_that_name_that_is_another_table_stays(here, run_file):
    other = run_file.with_name("other.csv")
    other.write_text("a,b\n1,2\n3,5\n4,4\n")
    here("ingest", other, "--name", "shop", "--plain")
    before = open_dataset("shop").data_hash
    assert "stored already, from" in here("run", run_file, "--plain").failed(1)
    assert open_dataset("shop").data_hash == before
    assert refreshed(here, run_file, "--force")["state"] == "published"


_REFRESH = """from flows.refreshes.refresh import refresh
from flows.settings.refresh import RefreshSettings
refresh(RefreshSettings(file={!r}))
"""
# Where a process is killed: in the fit, in the publication, and after it.
_MOMENTS = {
    "flows.refreshes.refresh.fit_and_save": "sales-0001",
    "storage.runs.shutil.copy2": "sales-0001",
    "flows.runs.published.History.add": "sales-0002",
}


@pytest.mark.long
@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_killed_refresh_leaves_a_whole_run_published(here, run_file, moment):
    change_part(
        run_file.parent, "a", lambda part, _: pd.concat([part, part[:100]], ignore_index=True)
    )
    refreshed(here, run_file)
    write_part(run_file.parent, "b", 40)
    killed_at(moment, _REFRESH.format(str(run_file)))
    hashes = {name: model_hash(name) for name in ("sales-0001", "sales-0002")}
    assert model_hash("sales") == hashes[_MOMENTS[moment]]
    load_model("sales")
    assert here("check").status == 0
    result = refreshed(here, run_file)
    assert (result["state"], result["run"]) == ("published", "sales-0002")
    assert result["comparison"]["published"] == "sales-0001"
    assert here("check").status == 0
    assert History("sales").published == "sales-0002"
    assert History("sales").runs == ["sales-0001", "sales-0002"]
    (failed,) = (each for each in History("sales").records if each.state == "failed")
    assert failed.reasons == ("its process ended without a word",)


@pytest.mark.long
@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_killed_first_refresh_is_no_obstacle(here, run_file, moment):
    killed_at(moment, _REFRESH.format(str(run_file)))
    result = refreshed(here, run_file)
    assert (result["state"], result["run"]) == ("published", "sales-0001")


def test_a_damaged_history_is_named(here, run_file):
    refreshed(here, run_file)
    path = home() / "refreshes" / "sales" / "1.json"
    text = path.read_text()
    later = to_sealed_json({"format_version": 7})
    for damaged in ("{", "[]", text[:-20], text.replace("400", "401"), later):
        path.write_text(damaged)
        assert str(path) in here("run", run_file, "--plain").failed(1)
        ended = here("check", "sales")
        assert ended.status == 1
        assert str(path) in ended.out


@pytest.mark.usefixtures("prefect_server")
def test_schedules_are_made_and_replaced(here, run_file, serving):
    wrong = here("schedule", run_file, "--cron", "nightly").failed(2)
    assert "`--cron` is 'nightly'; expected five fields, such as '0 2 * * *'\n" in wrong
    wrong = here("schedule", run_file, *NIGHTLY, "--timezone", "Mars").failed(2)
    assert "`--timezone` is 'Mars'; expected the name of one, such as Europe/Berlin" in wrong
    for cron, zone in (("0 2 * * *", "UTC"), ("30 3 * * 1", "Europe/Berlin")):
        answer = here("schedule", run_file, "--cron", cron, "--timezone", zone, "--json").answer
        assert (answer["name"], answer["cron"]) == ("sales", cron)
        deployment = serving.deployment("refresh/sales")
        assert answer["url"].endswith(deployment["id"])
        (schedule,) = deployment["schedules"]
        assert schedule["schedule"]["cron"] == cron
        assert schedule["schedule"]["timezone"] == zone
        assert deployment["parameters"] == {"settings": {"file": str(run_file)}}
        # The worker copies no folder; it starts beside the run file.
        (step,) = deployment["pull_steps"]
        assert [*step.values()] == [{"directory": str(run_file.parent)}]
        assert deployment["path"] is None
        # The flow itself lets one run compute at a time.
        assert deployment["global_concurrency_limit"] is None
    other = run_file.with_name("other.toml")
    other.write_text(RUN_FILE)
    assert f"which has a schedule by {run_file}" in here("schedule", other, *NIGHTLY).failed(2)


@pytest.mark.long
@pytest.mark.usefixtures("prefect_server")
def test_an_alert_calls_a_webhook(here, run_file, serving, hook):
    """The automations of `deploy/` act on what a refresh ends with."""
    address, called = hook
    words = {"subject": "{{subject}}", "text": "{{body}}"}
    given = {"name": "hook", "url": address, "json_data": words}
    block = CustomWebhookNotificationBlock.model_validate(given).save("hook", overwrite=True)
    file = run_file.with_name("alerts.yaml")
    text = (Path(__file__).parents[2] / "deploy/alerts.yaml").read_text()
    file.write_text(text.replace("document_id: BLOCK", f"document_id: {block}"))
    create = ("-m", "prefect", "automation", "create", "--from-file", file)
    created = ran(sys.executable, *create, PREFECT_API_URL=serving.api)
    assert created.returncode == 0, created.stdout
    missed = serving.find("automations", sort="NAME_ASC")[1]["trigger"]
    assert (missed["posture"], missed["within"]) == ("Proactive", 600)
    answer = here("run", run_file, "--json").answer
    assert answer["state"] == "published"
    (page,) = serving.artifacts_of(answer["flow_run"]["id"], "markdown")
    assert (page["key"], r"| sales-0001 \* |" in page["data"]) == ("refresh-sales", True)
    write_part(run_file.parent, "b", 400, shift=1.0)
    assert here("run", run_file).status == 1
    (run_file.parent / "parts" / "a.parquet").write_bytes(b"PAR1")
    assert here("run", run_file).status == 1
    wait(lambda: len(called) == 2)
    suspicious, failed = called
    assert suspicious["subject"].endswith("sales is Suspicious")
    assert "max_rows: there are 2 times as many rows" in suspicious["text"]
    assert failed["subject"].endswith("sales is Failed")
    assert "a.parquet" in failed["text"]


@pytest.fixture
def hook():
    """Serve a webhook; yield its address, and what it was called with."""
    called = []

    class Hook(SilentHandler):
        def do_POST(self):
            called.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer()

    with served(Hook) as address:
        yield f"{address}/hook", called


@pytest.mark.long
def test_a_home_is_backed_up_and_restored(here, run_file, monkeypatch):
    """As docs/operators.md says: a copy of the folder is a home, wherever it lies."""
    refreshed(here, run_file)
    backup = run_file.parent / "backup"
    subprocess.run(["cp", "-a", str(home()), str(backup)], check=True)
    write_part(run_file.parent, "b", 40)
    assert refreshed(here, run_file)["run"] == "sales-0002"
    monkeypatch.setenv("ISM_DASK_HOME", str(backup))
    assert here("check").status == 0
    assert History("sales").published == "sales-0001"
    assert refreshed(here, run_file)["run"] == "sales-0002"
    assert model_hash("sales") == model_hash("sales-0002")


def test_a_refresh_runs_once_at_a_time_and_is_cancelled_from_another_process(here, run_file):
    assert "no process computes the run 'sales'" in here("cancel", "sales").failed(2)
    code = (
        "import time\n"
        "from flows.runs.published import publishing\n"
        "from flows.progress.interrupts import install_signal_handlers\n"
        "install_signal_handlers()\n"
        "with publishing('sales'):\n"
        "    print('begun', flush=True)\n"
        "    try:\n"
        "        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout.readline() == "begun\n"
        assert "the run 'sales' is being computed" in here("run", run_file, "--plain").failed(1)
        waiting = Thread(target=one.wait)
        waiting.start()
        assert here("cancel", "sales").out.endswith(f"process {one.pid} has ended\n")
        assert one.stdout.readline() == "interrupted\n"
        waiting.join()


def test_a_new_run_file_for_a_glob_is_valid(here, run_file, monkeypatch):
    monkeypatch.chdir(run_file.parent)
    for data, name in (("parts/*.parquet", "parts"), ("*.parquet", "table"), ("a b.csv", "a-b")):
        path = run_file.with_name(f"{name}.toml")
        assert here("init", path, "--data", data, "--label", "churned").status == 0
        with pytest.raises(SettingsError, match="a refresh needs the table"):
            check_refreshable(read_run_file(path))
        path.write_text(path.read_text().replace("# [refresh]", "[refresh]"))
        assert check_refreshable(read_run_file(path)).name == name
