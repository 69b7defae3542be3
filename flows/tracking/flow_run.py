"""Run a flow under Prefect so that the server learns its end, even if the server was away."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import Flow, State
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import Abort, FailedRun, ObjectNotFound, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed
from prefect.utilities.urls import url_for

from flows.builtin.raw_data import DownloadError
from flows.errors import FlowError, Interrupted
from flows.interface.interrupts import (
    go_on_without_readers,
    resend_lost_interrupts,
    skip_exit_handlers,
    was_interrupted,
)
from flows.interface.progress import (
    progress_link,
    progress_log,
    progress_note,
    shown_at,
    watch_progress,
)
from flows.reports.summary import log_line
from flows.results.base import FlowResult, RunResult
from flows.services.prefect import without_password
from flows.services.status import report_url
from flows.settings.base import FlowSettings
from flows.tracking.client import ServerUnreachable, prefect_client, without_heartbeats
from flows.tracking.live import LiveRun
from flows.tracking.outbox import ArtifactPage, RunReceipt, send_receipts
from flows.tracking.overlap import gives_way_to, reason_to_give_way
from storage import StorageError

# The variable by which Prefect's workers name the flow run to the process that they start.
_SET_BY_WORKERS = "PREFECT__FLOW_RUN_ID"
# Seconds that a finished run waits for a server that is away, and seconds between two attempts.
_PATIENCE, _RETRY_SECONDS = 180.0, 1.0


@dataclass
class RunOutcome:
    """The outcome of a flow run, for its caller: Prefect cannot return it if the server is away.

    Attributes
    ----------
    receipt : RunReceipt or None
        The receipt with what the server does not know yet.
    summary : dict or None
        The result that the flow returns, as plain JSON.
    error : Exception or None
        The error that the flow raises.
    """

    receipt: RunReceipt | None = None
    summary: dict[str, Any] | None = None
    error: Exception | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the run has ended with a result or an error of its own."""
        return self.summary is not None or self.error is not None

    def result(self) -> dict[str, Any]:
        """Return the result of the flow as plain JSON, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.summary or {}


# A flow takes and returns JSON only, so the outcome cannot be passed to it.
_CURRENT_OUTCOME: ContextVar[RunOutcome | None] = ContextVar("outcome", default=None)


class TrackedRun:
    """A flow run within the block of `track_run`.

    Parameters
    ----------
    key : str
        Prefix of the keys of its artifacts.
    receipt : RunReceipt
        Its receipt on this machine.
    follower : LiveRun
        The thread that shows its progress.
    outcome : RunOutcome
        Object that takes its outcome.
    """

    def __init__(
        self, key: str, receipt: RunReceipt, follower: LiveRun, outcome: RunOutcome
    ) -> None:
        self._key, self._receipt, self._follower, self._outcome = key, receipt, follower, outcome
        # Those that a deployment gives it.
        self._tags = set(flow_run.tags)

    def describe(self, settings: FlowSettings) -> None:
        """Have name and tags of the flow run replaced, once its data are read."""
        self._follower.describe(settings.flow_run_name, {*self._tags, *settings.tags})

    def links(self, result: RunResult) -> dict[str, str]:
        """Return where the report, the folder and the dashboard of a saved run are, by title.

        They are addresses, or words: a browser opens no file from the page of a server.
        """
        links = {
            "Report": _report_link(result.run),
            "Folder of the run": str(Path(result.path).parent),
            "Dask dashboard": self._follower.dashboard,
        }
        return {name: url for name, url in links.items() if url}

    def page(self, markdown: str, about: str) -> ArtifactPage:
        """Return a markdown artifact for `finished`; `about` is the description on its card."""
        return ArtifactPage(self._key, "markdown", markdown, about)

    def table(self, name: str, rows: list[dict[str, Any]], about: str) -> ArtifactPage:
        """Return a table artifact for `finished`."""
        return ArtifactPage(f"{self._key}-{name}", "table", json.dumps(rows), about)

    def finished(
        self, result: FlowResult, *pages: ArtifactPage, state: State[Any] | None = None
    ) -> dict[str, Any]:
        """Send the artifacts to the server; return the result with the id and page of the run.

        `state` is the one that the flow returns, if it is not just Completed.
        """
        line = log_line(result) if isinstance(result, RunResult) else result.line
        progress_log(f"result: {line}")
        self._outcome.summary = replace(result, flow_run=current_flow_run()).to_json()
        self._outcome.receipt = self._save_receipt(state or Completed(), *pages)
        self._outcome.receipt = _send_pages(self._outcome.receipt)
        return self._outcome.summary

    def failed(self, error: Exception) -> None:
        """Record an error, which Prefect reports to the server; raise Abort if that is away."""
        self._outcome.error = error
        message = without_password(f"{type(error).__name__}: {error}")
        with suppress(StorageError):  # if the disk is full, `error` says so itself
            self._outcome.receipt = self._save_receipt(Failed(message=message))
        with suppress(ServerUnreachable), prefect_client() as client:
            client.hello()
            return
        raise Abort("the Prefect server is away") from error

    def interrupted(self) -> None:
        """Report to the server that the run was cancelled; Prefect would report a crash."""
        if self._outcome.has_ended:
            raise Abort("interrupted when all was done")
        how = "cancelled in the Prefect UI" if self._follower.cancelled else "interrupted"
        self._outcome.error = Interrupted(how)
        with suppress(StorageError):
            self._outcome.receipt = self._save_receipt(Cancelled(message=f"The run was {how}."))
        if not self._is_cancelled_by_worker():
            _send_outcome(self._outcome)
        raise Abort(how)

    def gave_way(self, reason: str) -> None:
        """Report to the server that the run is cancelled, since another does its work."""
        self._outcome.error = Interrupted(reason)
        self._outcome.receipt = self._save_receipt(Cancelled(message=reason))
        _send_outcome(self._outcome)
        raise Abort(reason)

    def _is_cancelled_by_worker(self) -> bool:
        """Return whether a worker of Prefect cancels the run, and reports that when it is done.

        It does so some seconds after the process has ended. Were the run Cancelled before, a user
        could retry it at once, and the report of the worker would cancel the new attempt.
        """
        if _SET_BY_WORKERS not in os.environ:
            return False
        with suppress(ServerUnreachable), prefect_client() as client:
            state = client.read_flow_run(UUID(self._receipt.run)).state
            return state is not None and state.is_cancelling()
        return False

    def _save_receipt(self, state: State[Any], *pages: ArtifactPage) -> RunReceipt:
        receipt = self._receipt.with_end(state, *pages)
        receipt.save()
        return receipt


@contextmanager
def track_run(kind: str, settings: FlowSettings) -> Iterator[TrackedRun]:
    """Show the progress of the flow run in the block, and report its end to the server."""
    run, key = UUID(str(flow_run.id)), artifact_key(kind, *settings.subject)
    if _SET_BY_WORKERS in os.environ:
        go_on_without_readers()
    known = _read_run(run)
    # Before the others are sent: it takes the place of the receipt of an earlier attempt.
    receipt = RunReceipt.for_this_process(run, known.run_count if known else 0)
    receipt.save()
    send_receipts()
    url = current_flow_run()["url"]
    if url is not None:
        progress_link(url)
    follower = LiveRun(run, key, f"{kind} {settings.title}", receipt.touch)
    this = TrackedRun(key, receipt, follower, _CURRENT_OUTCOME.get() or RunOutcome())
    this.describe(settings)
    if reason := reason_to_give_way(known):
        this.gave_way(reason)
    try:
        with resend_lost_interrupts(), follower, watch_progress(follower), shown_at(url):
            given = ", ".join(f"{name}={value}" for name, value in settings.differences.items())
            progress_log(without_password(f"{kind}: {given}; all other settings by default"))
            yield this
    except (KeyboardInterrupt, TerminationSignal):
        this.interrupted()
    except Exception as error:
        if was_interrupted():
            this.interrupted()
        if gives_way_to(error, known):
            this.gave_way(str(error))
        this.failed(error)
        raise


def run_flow(flow: Flow[..., Any], settings: FlowSettings) -> dict[str, Any]:
    """Run a flow in this process; return its result even if the server goes away meanwhile."""
    outcome = RunOutcome()
    token = _CURRENT_OUTCOME.set(outcome)
    try:
        # Heartbeats are not needed: the receipt tells the server of a run whose process dies.
        with without_heartbeats():
            flow(settings)
    except (Abort, httpx.HTTPError) as error:
        if not outcome.has_ended:
            message = without_password(str(error)) or type(error).__name__
            raise FlowError(f"Prefect ended the run: {message}") from error
        _send_outcome(outcome)
    except FailedRun:
        _drop_receipt(outcome)
        # A flow that has a result may return a failed state with a name of its own.
        if outcome.summary is None:
            raise
    except Exception:
        _drop_receipt(outcome)
        raise
    else:
        _drop_receipt(outcome)
    finally:
        _CURRENT_OUTCOME.reset(token)
    return outcome.result()


def _read_run(run: UUID) -> FlowRun | None:
    """Return what the server knows of a run, or None if it is away."""
    with suppress(ServerUnreachable, ObjectNotFound), prefect_client() as client:
        return client.read_flow_run(run)
    return None


def artifact_key(*parts: str) -> str:
    """Return an artifact key of lowercase letters, digits and dashes, as Prefect requires."""
    text = "-".join(parts).lower()
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)


def current_flow_run() -> dict[str, str | None]:
    """Return `id` and `url` of the current Prefect run; the url is None without a UI."""
    identity = UUID(str(flow_run.id))
    url = url_for("flow-run", obj_id=identity)
    return {"id": str(identity), "url": url and without_password(url)}


def _report_link(run: str) -> str:
    """Return the address of the report of a run, or without a report server how to write it."""
    url = report_url(run)
    return url if url.startswith("http") else f"ism-dask report {run}"


def _send_pages(receipt: RunReceipt) -> RunReceipt:
    """Send the artifacts of the run to the server; raise Abort if it stays away too long."""
    until, is_announced = time.monotonic() + _PATIENCE, False
    while True:
        try:
            return receipt.send_pages()
        except ServerUnreachable as away:
            if not is_announced:
                progress_note(
                    f"{away}: waiting for it, up to {_PATIENCE:.0f} s. What was computed is saved"
                )
            is_announced = True
            if time.monotonic() > until:
                raise Abort(str(away)) from away
        time.sleep(_RETRY_SECONDS)


def _send_outcome(outcome: RunOutcome) -> None:
    """Send the server what it does not know yet of a run that Prefect no longer reports."""
    if outcome.receipt is None:
        return
    try:
        outcome.receipt.send_pages().send_end()
    except ServerUnreachable as away:
        progress_note(
            f"{away}: the next command that finds it there tells it how this run has ended"
        )
        skip_exit_handlers()
    outcome.receipt = None


def _drop_receipt(outcome: RunOutcome) -> None:
    if outcome.receipt is not None:
        outcome.receipt.remove()


def is_transient(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Return whether a failed task may succeed later: its network or its cluster was away."""
    try:
        state.result()
    except DownloadError:
        return True
    except FlowError as error:
        return error.transient
    except Exception:
        return False
    return False


# Prefect's options for tasks that need more than this machine. A retry continues from what the
# failed attempt has saved.
RETRY_OPTIONS: dict[str, Any] = {
    "retries": 2,
    "retry_delay_seconds": [10, 60],
    "retry_condition_fn": is_transient,
}
