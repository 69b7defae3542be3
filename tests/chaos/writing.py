"""Every way in which something is written to the disk."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stock import PIECE, REQUEST, checkpoint, keep_model, keep_results, stock, store_small
from waiting import served

from flows.builtin import ingest
from flows.builtin.raw_files import fetch
from flows.reports.html import write_report, write_tables
from flows.runs.crossval import crossval_plain
from flows.runs.fit import fit_plain
from flows.runs.transform import transform_rows
from flows.services.leases import hold_lease
from flows.services.liveness import ArtifactPage, RunReceipt
from flows.services.service import ServiceRecord, services_folder
from flows.settings.base import TransformSettings
from flows.settings.runs import CrossvalSettings, FitSettings
from storage import Checkpoints, PartialResults, home, ingest_table, save_results, write_history

_LONG = bytes(range(256)) * 200


class Handler(BaseHTTPRequestHandler):
    """Answers with a file."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(_LONG)))
        self.end_headers()
        self.wfile.write(_LONG)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def fit(run: str) -> FitSettings:
    return FitSettings(
        dataset="wine", criterion="dependence", n_components=2, run=run, checkpoint=0.0, force=True
    )


def furnish() -> None:
    """Fill the home, and the folder beside it, with what is there before anything is written."""
    stock()
    ingest("wine")
    fit_plain(fit("wine-two"))
    save_results("tables", "tables", config={}, metrics={"cells": [], "others": []}, versions={})
    services_folder().mkdir()
    (home() / "raw" / "own").mkdir(parents=True)
    beside().mkdir()
    rows = "".join(f"{n % 7},{n % 5},{'no' if n % 2 else 'yes'}\n" for n in range(2000))
    (beside() / "own.csv").write_text(f"a,b,y\n{rows}")
    _table()
    write_history("own", [{"state": "published"}])
    for write in (_slip, _record, _report, _transform, _tables):
        write()
    (home() / "raw" / "own" / "file").write_bytes(b"old")


def beside() -> Path:
    """Return a folder that people have chosen, on the same disk."""
    return home().with_name("out")


def _slip() -> None:
    name = "0" * 32
    RunReceipt(run=name, api="http://127.0.0.1", pages=(ArtifactPage("a", "b", "c"),)).write()


def _record() -> None:
    ServiceRecord(name="own", address="http://127.0.0.1").write()


def _report() -> None:
    write_report("wine-two")


def _transform() -> None:
    transform_rows("wine-two", TransformSettings(source="wine", out=beside() / "new.csv"))


def _tables() -> None:
    write_tables("tables", beside())


def _table() -> None:
    ingest_table(beside() / "own.csv", "table", label="y", force=True)


def _lease() -> None:
    with hold_lease("under-way", "fit", {}, lambda: True):
        pass


def _download() -> None:
    with served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        fetch(f"{address}/file", home() / "raw" / "own" / "file")


WRITES: dict[str, Callable[[], object]] = {
    "a data set": lambda: store_small(1),
    "an ingest": lambda: ingest("wine", force=True),
    "a table": _table,
    "a download": _download,
    "a model": lambda: keep_model(1),
    "results": lambda: keep_results(0.1),
    "a checkpoint": lambda: Checkpoints.of_run("under-way").save(REQUEST, checkpoint(7)),
    "a fold": lambda: PartialResults.of_run("under-way").save(PIECE, REQUEST, {"accuracy": 0.1}),
    "a lease": _lease,
    "a report": _report,
    "tables": _tables,
    "new features": _transform,
    "a slip": _slip,
    "a record": _record,
    "a history": lambda: write_history("own", [{"state": "unchanged"}]),
    "a fit": lambda: fit_plain(fit("new")),
    "folds": lambda: crossval_plain(
        CrossvalSettings(dataset="wine", criterion="dependence", first=1, run="new")
    ),
}
