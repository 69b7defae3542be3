"""The report server, under hostile requests; its metrics; names that are not meant to be text."""

import http.client
import os
import shutil
import socket
import sys
import time
from base64 import b64decode
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from itertools import product

import pytest
from daskparts import process
from prometheus_client.parser import text_string_to_metric_families
from support import ENDING, EXACT, store_own
from waiting import answers, ask, served, wait

from flows.reports.server import HOST, ReportHandler
from flows.services.leases import Lease, LiveNumbers
from flows.tracking.server import is_report_server
from storage import home, open_run, run_folder, save_results

SECRET = "for nobody's eyes"


@pytest.fixture
def port(fitted_wine):
    """Serve the runs of a home with one run in it, and a secret beside the runs."""
    (home() / "secret.html").write_text(SECRET)
    server = ThreadingHTTPServer((HOST, 0), ReportHandler)
    with served(server):
        yield server.server_port


def answer_of(port, path, method="GET", **headers):
    """Return status and page for a path that nobody has put in order before."""
    with closing(http.client.HTTPConnection(HOST, port, timeout=60)) as connection:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
        return reply.status, reply.read().decode()


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.html",
        "/..%2fsecret.html",
        "/%2e%2e/secret.html",
        "/%252e%252e%252fsecret.html",
        "/mine/../../secret.html",
        "/mine/result/manifest.json",
        "//secret.html",
        "/..\\secret.html",
        "/..%5csecret.html",
        "/secret.html%00",
        "/%c0%ae%c0%ae/secret.html",
        "/.hidden",
        "/.",
        "/~",
        f"http://{HOST}/mine",
        "file:///etc/passwd",
        "/" + "a" * 129,
    ],
)
def test_no_path_leads_out(port, path):
    status, page = answer_of(port, path)
    assert status == 404
    assert SECRET not in page


def test_no_link_leads_out(port, tmp_path):
    outside = tmp_path / "outside"
    shutil.copytree(run_folder("mine"), outside)
    run_folder("mine").with_name("link").symlink_to(outside)
    shutil.copytree(run_folder("mine"), run_folder("part"))
    shutil.rmtree(run_folder("part") / "result")
    (run_folder("part") / "result").symlink_to(outside / "result")
    shutil.copytree(run_folder("mine"), run_folder("file"))
    chunk = run_folder("file") / "result/components/c/0/0"
    chunk.unlink()
    chunk.symlink_to(home() / "secret.html")
    for name in ("link", "part", "file"):
        status, page = answer_of(port, f"/{name}")
        assert status >= 400, name
        assert SECRET not in page
    assert answer_of(port, "/mine")[0] == answer_of(port, "/")[0] == 200


def test_only_our_names_are_heard(port):
    for name in (f"{HOST}:{port}", "localhost", f"localhost:{port}"):
        assert answer_of(port, "/", Host=name)[0] == 200
    for name in ("example.org", f"example.org:{port}", f"{HOST}.example.org", f"x@{HOST}", "[::1]"):
        for path in ("/", "/mine"):
            status, page = answer_of(port, path, Host=name)
            assert status == 403
            assert "wine" not in page


def test_only_pages_are_to_be_had(port):
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert answer_of(port, "/mine", method)[0] == 405
    for method in ("TRACE", "CONNECT", "BREW"):
        assert answer_of(port, "/mine", method)[0] == 501
    assert answer_of(port, "/mine", "HEAD") == (200, "")


@pytest.mark.parametrize(
    "bytes_",
    [
        b"GET /mine HTTP/1.1\r\n\r\n",
        b"GET /mine HTTP/1.1\r\nHost: example.org\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /mine\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /mine HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_of_a_browser_gets_no_page(port, bytes_):
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall(bytes_)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
    assert b"wine" not in found
    assert answer_of(port, "/")[0] == 200


def save_crossval(run, J, seconds):
    """Save a run with one fold."""
    means = {"accuracy": 0.9, "cost": -J, "seconds": seconds, "iterations": 1}
    fold = {**ENDING, "fold": 1, "accuracy": 0.9, "cost": -J, "baselines": {}, "seconds": seconds}
    data = {"dataset": "<script>alert(1)</script>", "kernel": "linear", "n_components": 1}
    metrics = {**data, "rows": 9, "columns": 2, "folds": 2, "class_names": [], "results": [fold]}
    metrics |= {"mean": means, "sd": means, "page": "http://127.0.0.1:4201/runs/flow-run/7"}
    save_results(run, "crossval", config={}, metrics=metrics, versions={})


def test_the_list_of_runs_is_sorted_and_filtered(port, browser):
    for day, seconds in enumerate((100.0, 3.0, 20.0), start=1):
        save_crossval(f"n-2026-11-0{day}", 10.0 * day, seconds)
    lease = Lease(run="dead", kind="fit", settings={"dataset": "wine"}, host="elsewhere")
    run_folder("dead").mkdir()
    lease.write()
    os.utime(lease.path, (9, 9))

    def look(page):
        def names():
            rows = page.locator("tbody tr:visible th").all_inner_texts()
            return [each[-1] for each in rows if each.startswith("n-")]

        def after(title):
            page.get_by_role("button", name=title, exact=True).click()
            return names()

        def rows_with(words):
            page.get_by_role("searchbox").fill(words)
            return page.locator("tbody tr:visible th").all_inner_texts()

        address = page.locator("figure img").first.get_attribute("src")
        drawn = b64decode(address.partition(",")[2]).decode()
        return {
            "at first": names(),
            "seconds": after("seconds"),
            "again": after("seconds"),
            "J": after("J"),
            "pictures": page.locator("figure h3").all_inner_texts(),
            "dates": f"{datetime.now(UTC):%Y-%b-%d}" in drawn,
            "died": rows_with("DIED wine"),
            "of a day": rows_with("crossval -03"),
            "flow run": page.locator("tbody tr:visible td a").get_attribute("href"),
        }

    visit = browser.visit(f"http://{HOST}:{port}/", look)
    assert visit.found == {
        "at first": ["3", "2", "1"],
        "seconds": ["2", "3", "1"],
        "again": ["1", "3", "2"],
        "J": ["1", "2", "3"],
        "pictures": ["n: J", "n: accuracy", "n: seconds"],
        "dates": True,
        "died": ["dead"],
        "of a day": ["n-2026-11-03"],
        "flow run": "http://127.0.0.1:4201/runs/flow-run/7",
    }
    assert visit.complaints == []
    assert visit.requests == [f"http://{HOST}:{port}/"]


def test_no_script_runs_but_the_one_of_the_list(port, browser):
    def look(page):
        page.evaluate("document.body.innerHTML = '<p></p>'")
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            " document.body.append(s); }"
        )
        return page.evaluate("window.ran === undefined")

    for path in ("", "mine"):
        visit = browser.visit(f"http://{HOST}:{port}/{path}", look)
        assert visit.found is True
        assert "Content Security Policy" in visit.complaints[0]


@pytest.fixture
def server(unused_port):
    """Serve as in a container: on all addresses, and under a name of its own."""
    where = ("--host", "0.0.0.0", "--port", unused_port, "--allow-host", "Reports.example.org")
    address = f"http://{HOST}:{unused_port}"
    with process(sys.executable, "-m", "flows.reports.server", *where):
        wait(lambda: answers(address))
        yield address


def samples(address):
    """Return what Prometheus would read: by name, and by run with its state if it has one."""
    reply = ask("GET", f"{address}/metrics").raise_for_status()
    assert reply.headers["Content-Type"].startswith("text/plain; version=")
    found = {}
    for family in text_string_to_metric_families(reply.text):
        assert family.documentation
        for each in family.samples:
            of = " ".join(filter(None, (each.labels.get("run"), each.labels.get("state"))))
            found[each.name.removeprefix("ism_dask_run_"), of] = each.value
    return found


def test_a_password_is_asked_for_if_there_is_one(port, monkeypatch):
    monkeypatch.setenv("ISM_DASK_REPORTS_AUTH", "ism:gr\u00fcn")
    address = f"http://{HOST}:{port}"
    for path in ("", "/mine", "/metrics", "/none"):
        for wrong in (None, ("ism", "other"), ("other", "gr\u00fcn"), ("", "")):
            reply = ask("GET", f"{address}{path}", auth=wrong)
            assert reply.status_code == 401
            assert reply.headers["WWW-Authenticate"].startswith("Basic ")
            assert "wine" not in reply.text
    right = ("ism", "gr\u00fcn")
    for path in ("", "/mine", "/metrics"):
        assert ask("GET", f"{address}{path}", auth=right).status_code == 200
    assert is_report_server(address)


@pytest.mark.long
def test_metrics_of_a_fit_that_runs_and_is_killed(server, fitted_wine):
    store_own(3_000, 20)
    fit = ("fit", "own", "--plain", *EXACT, "-q", 2, "--run", "live")
    endless = ("--tol", "1e-14", "--max-iter", 100_000)
    with process(sys.executable, "-m", "flows.cli", *fit, *endless) as command:
        wait(lambda: samples(server).get(("iterations", "live"), 0) > 0)
        found = samples(server)
        assert found["state", "live computing"] == 1
        assert found["state", "live finished"] == found["state", "mine computing"] == 0
        assert found["rows", "live"] == 3_000
        for name in ("objective", "rows_per_second", "seconds"):
            assert found[name, "live"] > 0, name
        assert found["seconds_since_sign_of_life", "live"] >= 0
        assert found["workers_lost_total", "live"] == found["clusters_lost_total", "live"] == 0
        command.kill()
        command.wait()
    found = samples(server)
    assert found["state", "live died"] == 1
    assert found["iterations", "live"] > 0


def test_metrics_of_finished_runs_and_of_leases(server, fitted_wine):
    """What ended by itself says how, whatever is in its lease; the newest are listed."""
    metrics, found = open_run("mine").metrics, samples(server)
    assert found["state", "mine finished"] == 1
    for name in ("rows", "iterations", "objective", "seconds"):
        assert found[name, "mine"] == metrics[name], name
    assert found["rows_per_second", "mine"] == pytest.approx(
        metrics["rows"] * metrics["iterations"] / metrics["seconds"]
    )
    assert ("seconds_since_sign_of_life", "mine") not in found
    now = time.time()
    odd = Lease(run="a", kind='fit"}\n\\ 1', settings={}, host="elsewhere", taken=now - 9)
    numbers = LiveNumbers(7, 3, -0.5, None, 2, 1)
    endings = {"computing": "", "interrupted": "was interrupted", "failed": "failed: no disk"}
    for state, ended in endings.items():
        lease = replace(odd, run=f"is-{state}", ended=ended, numbers=numbers)
        run_folder(lease.run).mkdir(parents=True)
        lease.write()
        found = samples(server)
        assert found["state", f"{lease.run} {state}"] == 1
        assert found["objective", lease.run] == -0.5
        assert found["workers_lost_total", lease.run] == 2
        assert ("rows_per_second", lease.run) not in found
    later = {f"later-{number}" for number in range(50)}
    for run in later:
        lease = replace(odd, run=run)
        run_folder(run).mkdir()
        lease.write()
        os.utime(lease.path, (now + 1000, now + 1000))
    assert {of for name, of in samples(server) if name == "seconds"} == {"mine", *later}
    ours = ("reports.example.org", "Reports.Example.org:443", "localhost")
    for name, path in product((*ours, "example.org", "0.0.0.0"), ("/", "/metrics")):
        reply = ask("GET", f"{server}{path}", headers={"Host": name})
        assert reply.status_code == (200 if name in ours else 403), (name, path)
