"""The flows under Prefect: the same numbers, and what the UI shows of them."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from support import Diary, artifacts_of, store_own, unbounded

from flows.errors import FlowError, SettingsError
from flows.progress import watching
from flows.settings import CrossvalSettings, FitSettings
from flows.work.fitting import fit_plain
from flows.work.folds import crossval_plain

pytestmark = pytest.mark.usefixtures("prefect_server")

WINE = CrossvalSettings(dataset="wine", first=3)


def test_crossval_shows_what_it_computes() -> None:
    from flows.crossval import run_crossval

    summary = run_crossval(WINE)
    json.dumps(summary, allow_nan=False)
    plain = crossval_plain(WINE)
    for one, two in zip(summary["results"], plain["results"], strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}
    run = _run(summary)
    assert run.state.is_completed()
    assert run.name == "wine gaussian q=3"
    assert set(run.tags) == {"wine", "gaussian"}
    assert _task_names(run.id) == {
        "ingest wine",
        "fold 1 of 10",
        "fold 2 of 10",
        "fold 3 of 10",
        "aggregate",
    }
    artifacts = artifacts_of(run.id)
    rows = json.loads(artifacts["crossval-wine-gaussian"].data)
    assert [row["fold"] for row in rows] == ["1", "2", "3", "mean", "sd"]
    assert rows[3]["accuracy"] == summary["mean"]["accuracy"]
    assert artifacts["crossval-wine-gaussian-progress"].data == 100


def test_fit_shows_what_it_keeps() -> None:
    from flows.fit import run_fit

    settings = FitSettings(dataset="breast_cancer", kernel="linear", n_components=2, run="two")
    summary = run_fit(settings)
    plain = fit_plain(replace(settings, run="plain"))
    assert summary["objective"] == plain["objective"]
    assert summary["loadings"] == plain["loadings"]
    run = _run(summary)
    assert (run.name, run.state.is_completed()) == ("breast_cancer linear q=2", True)
    artifacts = artifacts_of(run.id)
    page = artifacts["fit-breast-cancer-linear"].data
    assert page.startswith("# two\n")
    assert summary["loadings"][1][0]["feature"] in page
    assert artifacts["fit-breast-cancer-linear-progress"].data == 100
    with pytest.raises(FlowError, match="--force"):
        run_fit(settings)


def test_passes_are_told_of_under_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    import flows.passes
    import flows.progress
    import flows.tracking
    from flows.fit import run_fit

    monkeypatch.setattr(flows.passes, "_LONG", -1.0)
    monkeypatch.setattr(flows.progress, "_EVERY", 1e-4)
    monkeypatch.setattr(flows.tracking, "_SECONDS", 0.0)
    store_own(3000)
    diary = Diary()
    with watching(diary):
        summary = run_fit(FitSettings(dataset="own", engine="exact", tol=1e-12, max_iter=9))
    assert any("rows " in text for text in diary.texts)
    # An update that had failed, from whichever thread, would have been the last.
    assert artifacts_of(_run(summary).id)["fit-own-gaussian-progress"].data == 100


def test_what_an_engine_has_to_say_is_on_the_page() -> None:
    from flows.fit import run_fit

    settings = unbounded()
    page = artifacts_of(_run(run_fit(settings)).id)["fit-own-multiquadric"].data
    assert "| Engine | landmarks |" in page
    assert "| Error of J | no bound |" in page
    assert ", true kernel, all 400 rows |" in page
    store_own(4000)
    summary = run_fit(FitSettings(dataset="own", sigma=1e-3, max_iter=1))
    page = artifacts_of(_run(summary).id)["fit-own-gaussian"].data
    assert summary["engine_note"] in unescape(page).replace("\\", "")


def test_a_wrong_request_fails_the_run_and_comes_back_as_it_is() -> None:
    from flows.crossval import crossval

    with pytest.raises(SettingsError, match="`label` is 'colour'"):
        crossval(replace(WINE, label="colour"))


def test_progress_that_cannot_be_shown_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import flows.tracking
    from flows.crossval import crossval

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(flows.tracking, "update_progress_artifact", unreachable)
    assert len(crossval(WINE)["results"]) == 3


def test_progress_is_shown_once_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    import flows.tracking

    told: list[float] = []
    monkeypatch.setattr(flows.tracking, "create_progress_artifact", lambda **_: "an id")
    monkeypatch.setattr(
        flows.tracking, "update_progress_artifact", lambda _, progress, **__: told.append(progress)
    )
    artifact = flows.tracking.ProgressArtifact("key", "title")
    for share in (0.0, 0.2, 0.4, 1.0):
        artifact.tick(share, "text")
    assert told == [0.0, 100.0]


def _run(summary: dict[str, Any]) -> Any:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.read_flow_run(summary["flow_run"]["id"])


def _task_names(run: Any) -> set[str]:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    only = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
    with get_client(sync_client=True) as client:
        return {task.name for task in client.read_task_runs(flow_run_filter=only)}
