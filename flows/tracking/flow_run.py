"""Run a flow under Prefect so that the server learns its end, even if the server was away."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any, NoReturn

from httpx import HTTPError, HTTPStatusError
from prefect import Flow, State, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import Abort, FailedRun, TerminationSignal
from prefect.flow_engine import run_flow as run_by_prefect
from prefect.states import Cancelled, Completed, Failed, Pending
from prefect.utilities.urls import url_for
from rich.console import Console

from flows.errors import FlowError, Interrupted, RunHeldError
from flows.progress.interrupts import INTERRUPTED, SKIP_EXIT_HANDLERS
from flows.progress.watching import (
    in_context,
    progress_log,
    progress_note,
    run_context,
    watch_progress,
)
from flows.reports.pages import publish_report, render_markdown
from flows.reports.summary import View, card_line, log_line, summarise
from flows.results.runs import FlowResult, RunResult
from flows.services.liveness import SET_BY_WORKERS, RunReceipt
from flows.settings.base import FlowSettings
from flows.tracking.client import (
    BUSY_RETRIES,
    ServerUnreachable,
    deliver,
    prefect_client,
    send_page,
    send_receipts,
    server_address,
    temporary_settings,
)
from flows.tracking.live import LiveRun
from flows.tracking.server import check_disk, report_url, without_password
from storage import StorageError


def run_flow(flow: Flow[..., Any], settings: FlowSettings) -> Any:
    """Run a flow in this process; return its result even if the server goes away meanwhile.

    The result is the dataclass of `flows.results` that the flow hands to `TrackedRun.finished`.
    """
    parameters: dict[str, Any] = {"settings": settings}
    with prefect_client(BUSY_RETRIES) as client:
        # Prefect would call it by two random words until it runs.
        made = client.create_flow_run(
            flow, settings.flow_run_name, flow.serialize_parameters(parameters), state=Pending()
        )
    begun, is_reported = list[TrackedRun](), True
    try:
        # Heartbeats are not needed: the server learns from the receipt of a run whose process dies.
        # At the end of a flow, their thread notices only once a second that it has to stop.
        with in_context(begun=begun), temporary_settings("flows", heartbeat_frequency=None):
            run_by_prefect(flow, made, parameters)
    except (Abort, Exception) as error:
        if not begun or begun[0].outcome is None:
            if not isinstance(error, Abort | FailedRun | HTTPError):
                raise
            check_disk()
            message = without_password(str(error)) or type(error).__name__
            raise FlowError(f"Prefect ended the run: {message}") from error
        is_reported = not isinstance(error, Abort | HTTPError)
        if isinstance(error, HTTPError):
            begun[0].deliver()
    this = begun[0]
    if is_reported:
        this.receipt.remove()
    if isinstance(this.outcome, Exception):
        raise this.outcome
    return this.outcome


class TrackedRun(LiveRun):
    """A flow run within the block of `track_run`, and its outcome after it.

    Prefect cannot return the outcome if the server is away.
    """

    def __init__(self, run: FlowRun, kind: str, settings: FlowSettings) -> None:
        by_worker = SET_BY_WORKERS in os.environ
        if by_worker:
            # A worker reads what Prefect logs. If it dies, rich, which writes it, would end us.
            Console.on_broken_pipe = partialmethod(setattr, "quiet", True)  # type: ignore
        receipt = RunReceipt(
            run=str(run.id), api=server_address(), attempt=run.run_count, by_worker=by_worker
        )
        # Prefect allows no other letters.
        key = re.sub("[^a-z0-9]", "-", "-".join((kind, *settings.subject)).lower())
        super().__init__(run, receipt, key, f"{kind} {settings.title}")
        url = url_for("flow-run", obj_id=run.id)
        # Its id, and the address of its page, None without a UI.
        self.facts = {"id": str(run.id), "url": url and without_password(url)}
        self.outcome: FlowResult | Exception | None = None  # None while it goes on
        self._last_step: list[State[Any]] = []

    def step(self, title: str, work: Callable[[], Any]) -> Any:
        """Do a step of the run as a task, after the one before it in the graph of the run."""
        name = title.partition(" ")[0]  # "fold" of all folds

        @task(name=name, task_run_name=lambda: title, cache_policy=NO_CACHE, persist_result=False)
        def done() -> Any:
            try:
                return work()
            except (KeyboardInterrupt, TerminationSignal):
                return Cancelled()  # the task raises nothing: Prefect would log a crash

        state: State[Any] = done(wait_for=self._last_step, return_state=True)
        if state.is_cancelled():
            raise KeyboardInterrupt
        self._last_step = [state]
        return state.result()

    def describe(self, settings: FlowSettings) -> None:
        """Replace name and tags of the flow run, once its data are read."""
        # The tags are set here and not at the start of the flow, because a schedule or the form in
        # the UI may start it. They are not set by Prefect's `tags`, because tasks would get them
        # too, and look up a concurrency limit for each, which takes two seconds.
        name, tags = settings.flow_run_name, {*self._run.tags, *settings.tags}
        with suppress(ServerUnreachable, HTTPStatusError), prefect_client(BUSY_RETRIES) as client:
            client.update_flow_run(self._run.id, name=name, tags=tags)
        run = getattr(settings, "run", None)
        if run is not None and not self.receipt.by_worker:
            progress_log(f"to cancel it: `ism-dask cancel {run}`; Prefect's page cannot")

    def saved(self, result: RunResult) -> dict[str, Any]:
        """Do the same as `finished` for a saved run, whose page is its summary.

        It says where report and folder are, by addresses or in words: a browser opens no file from
        the page of a server. If `ism-dask up` serves reports, the report is written.
        """
        view = View.of(result.run)
        summary = summarise(result, view)
        if url := report_url(result.run):
            with suppress(StorageError):  # the run is saved, and the page in Prefect has the same
                publish_report(view, summary)
        links = {
            "Report": url or f"ism-dask report {result.run}",
            "Folder of the run": str(Path(result.path).parent),
        }
        return self.finished(result, render_markdown(summary, links), card_line(result))

    def finished(
        self, result: FlowResult, page: str, about: str, state: State[Any] | None = None
    ) -> dict[str, Any]:
        """Have the page sent, in Markdown; return the result as JSON, with id and page of the run.

        `about` is the description on the card of the page, `state` the one that the flow returns,
        if it is not just Completed.
        """
        line = log_line(result) if isinstance(result, RunResult) else result.line
        progress_log(f"result: {line}")
        result = replace(result, flow_run=self.facts)
        self.ended(result, state or Completed(), key=self._key, data=page, description=about)
        return result.to_json()

    def ended(self, outcome: FlowResult | Exception, state: State[Any], **page: str) -> None:
        """Record the end, which Prefect then reports; raise Abort if the server is away."""
        self.outcome = outcome
        what = state.model_dump(mode="json", include={"type", "name", "message"})
        self._save_receipt(state=what, page=page)
        try:
            # The server refuses pages of a run that somebody has deleted.
            with suppress(HTTPStatusError), prefect_client(BUSY_RETRIES) as client:
                client.hello()
                send_page(self.receipt, client)
        except ServerUnreachable as away:
            self.deliver()
            raise Abort(str(away)) from away
        self._save_receipt(page={})

    def interrupted(self, why: str = "") -> NoReturn:
        """Report to the server that the run is cancelled; Prefect would report a crash."""
        if self.outcome is None:
            why = why or self.ended_by or "interrupted"
            self.ended(Interrupted(why), Cancelled(message=f"The run was {why}."))
        self.deliver()
        raise Abort(why)

    def deliver(self) -> None:
        """Tell the server the end in place of Prefect; if it is away, the receipt stays."""
        try:
            deliver(self.receipt)
        except ServerUnreachable as away:
            told = "`ism-dask up`, or the next command, tells it how this run has ended"
            progress_note(f"{away}: {told}")
            SKIP_EXIT_HANDLERS.set()

    def _save_receipt(self, **changes: Any) -> None:
        self.receipt = replace(self.receipt, renewed=time.time(), **changes)
        with suppress(StorageError):  # if the disk is full, the error of the run says so itself
            self.receipt.write()


@contextmanager
def track_run(kind: str, settings: FlowSettings) -> Iterator[TrackedRun]:
    """Show the progress of the flow run in the block, and report its end to the server."""
    context: Any = FlowRunContext.get()
    this = TrackedRun(context.flow_run, kind, settings)
    # Before the others are sent: it takes the place of the receipt of an earlier attempt.
    this.receipt.write()
    send_receipts()
    url = this.facts["url"]
    if url is not None:
        progress_note(f"run: {url}")
    run_context().begun.append(this)
    this.describe(settings)
    try:
        with (
            this.shown(),
            watch_progress(this),
            in_context(page=url, describe=this.describe, step=this.step),
        ):
            yield this
    except (KeyboardInterrupt, TerminationSignal):
        this.interrupted()
    except Exception as error:
        if INTERRUPTED.is_set() or this.ended_by:
            this.interrupted()
        if context.flow_run.auto_scheduled and isinstance(error, RunHeldError):
            this.interrupted(f"not needed: {error}")
        message = without_password(f"{type(error).__name__}: {error}")
        this.ended(error, Failed(message=message))
        raise
