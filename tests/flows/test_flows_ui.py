"""The pages of Prefect, in a real browser: the form of a run, and what a finished run shows."""

from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import TypeAdapter

from flows.settings.unsupervised import ClusterSettings

# A page loads its parts one after the other.
PATIENCE = 60_000
NAME = "wine-gaussian-q2: wine gaussian q=2, by prediction, on this machine"


@pytest.mark.long
def test_a_finished_run_shows_its_tables_and_pictures(serving, apart, browser):
    ended = apart("fit", "wine", "-q", 2, "--json")
    run = ended.answer["flow_run"]
    (artifact,) = serving.artifacts_of(run["id"], "markdown")

    def shows(page):
        for text in (NAME, "Completed"):
            page.get_by_text(text, exact=True).first.wait_for(timeout=PATIENCE)

    visit = browser(run["url"], shows)
    assert _hosts(visit.requests) == {urlsplit(serving.page).netloc}

    def look(page):
        page.wait_for_selector("table", timeout=PATIENCE)
        page.wait_for_selector("img", timeout=PATIENCE)
        page.wait_for_function("[...document.images].every(each => each.complete)")
        return {
            "text": page.inner_text("body"),
            "widths": page.evaluate("[...document.images].map(each => each.naturalWidth)"),
        }

    page = f"{serving.page}/artifacts/artifact/{artifact['id']}"
    visit = browser(page, look)
    assert "flavanoids" in visit.found["text"]
    assert "wine-gaussian-q2" in visit.found["text"]
    assert min(visit.found["widths"]) > 0
    assert _hosts(visit.requests) == {urlsplit(serving.page).netloc}


def test_the_form_starts_a_run_as_it_is(serving, browser):
    deployment = serving.deployed("form", "cluster")

    def start(page):
        page.get_by_text("Dask scheduler or cluster file (Optional)").wait_for(timeout=PATIENCE)
        form = page.inner_text("form")
        # With the keyboard: a click that takes no time opens the list and closes it again.
        page.locator(".p-select-button__control").first.press("ArrowDown")
        page.locator(".p-select-option").get_by_text("wine").click()
        _submit(page)
        return str(form)

    page = f"{serving.page}/deployments/deployment/{deployment}/run"
    visit = browser(page, start, viewport={"width": 1200, "height": 2400})
    titles = ("Data set", "Label", "Kernel", "Sigma", "Paradigm", "Clusters, k", "New features, q")
    places = [visit.found.index(title) for title in titles]
    assert places == sorted(places)
    # What may stay empty is an empty field, and no choice of a type.
    assert "None" not in visit.found
    assert "its classes are counted" in visit.found
    wanted = {"deployments": {"id": {"any_": [deployment]}}}
    run = serving.find("flow_runs", **wanted)[0]
    given = run["parameters"]["settings"]
    assert TypeAdapter(ClusterSettings).validate_python(given) == ClusterSettings(dataset="wine")


def _submit(page):
    """Submit the form of a run, again while the database of the server is busy."""
    status = httpx.codes.SERVICE_UNAVAILABLE
    while status == httpx.codes.SERVICE_UNAVAILABLE:
        with page.expect_response("**/create_flow_run", timeout=PATIENCE) as answer:
            page.get_by_role("button", name="Submit").click()
        status = answer.value.status


def _hosts(requests):
    """Return what a page asked for something, beside what is inside it."""
    return {urlsplit(each).netloc for each in requests if not each.startswith(("data:", "blob:"))}
