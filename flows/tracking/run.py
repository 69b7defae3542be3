"""A run under Prefect: what the server is told of it, however it ends, and when it is away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import Flow, State
from prefect.client.schemas.objects import StateType
from prefect.exceptions import Abort
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from flows.errors import FlowError, Interrupted
from flows.interface.interrupts import asked_to_end, interrupts_insist, leave_at_once
from flows.interface.progress import progress_link, progress_note, watch_progress
from flows.services.prefect import without_password
from flows.services.status import report_url
from flows.settings.base import FlowSettings
from flows.tracking.client import ServerUnreachable, prefect_client, without_heartbeats
from flows.tracking.live import LiveRun
from flows.tracking.outbox import ArtifactPage, RunReceipt, send_receipts
from storage import DownloadError, StorageError, report_path

# For how long a run that is over waits for a server that is away, and how often it asks.
_PATIENCE, _EVERY = 180.0, 1.0


@dataclass
class RunOutcome:
    """What came of a run, for whoever started it: without its server Prefect cannot say.

    Attributes
    ----------
    slip : Slip or None
        What the server has to know.
    summary : dict or None
        What the flow returns.
    error : Exception or None
        What it raises.
    """

    slip: RunReceipt | None = None
    summary: dict[str, Any] | None = None
    error: Exception | None = None

    @property
    def known(self) -> bool:
        """Whether the run has come to an end of its own."""
        return self.summary is not None or self.error is not None

    def result(self) -> dict[str, Any]:
        """Return or raise what the flow does."""
        if self.error is not None:
            raise self.error
        return self.summary or {}


# A flow takes and returns JSON only.
_OUTCOME: ContextVar[RunOutcome | None] = ContextVar("outcome", default=None)


class TrackedRun:
    """A flow run in the block of `tracked`.

    Parameters
    ----------
    key : str
        Of what the run shows.
    follower : Follower
    outcome : Outcome
    """

    def __init__(self, key: str, slip: RunReceipt, follower: LiveRun, outcome: RunOutcome) -> None:
        self._key, self._slip, self._follower, self._outcome = key, slip, follower, outcome

    def links(self, summary: dict[str, Any]) -> dict[str, str]:
        """Return what there is to see of a run that was kept, by what it is."""
        known = {
            "Report": _report(summary["run"]),
            "Folder of the run": Path(summary["path"]).parent.as_uri(),
            "Dask dashboard": self._follower.dashboard,
        }
        return {name: url for name, url in known.items() if url}

    def page(self, markdown: str) -> ArtifactPage:
        """Return a page to be shown when the run has finished."""
        return ArtifactPage(self._key, "markdown", markdown)

    def table(self, name: str, rows: list[dict[str, Any]], about: str) -> ArtifactPage:
        """Return a table to be shown when the run has finished."""
        return ArtifactPage(f"{self._key}-{name}", "table", json.dumps(rows), about)

    def finished(self, summary: dict[str, Any], *pages: ArtifactPage) -> dict[str, Any]:
        """Show what has been done; return the summary, with where the run is shown."""
        self._outcome.summary = {**summary, "flow_run": current_run()}
        self._outcome.slip = self._kept(StateType.COMPLETED, "", *pages)
        self._outcome.slip = _handed(self._outcome.slip)
        return self._outcome.summary

    def failed(self, error: Exception) -> None:
        """Take note of an error, which Prefect tells the server if there is one."""
        self._outcome.error = error
        said = without_password(f"{type(error).__name__}: {error}")
        with suppress(StorageError):  # of a full disk the error itself tells
            self._outcome.slip = self._kept(StateType.FAILED, said)
        with suppress(ServerUnreachable), prefect_client() as client:
            client.hello()
            return
        raise Abort("the Prefect server is away") from error

    def interrupted(self) -> None:
        """Tell the server that the run was cancelled, which Prefect would call a crash."""
        if self._outcome.known:
            raise Abort("interrupted when all was done")
        how = "cancelled in the Prefect UI" if self._follower.cancelled else "interrupted"
        self._outcome.error = Interrupted(how)
        with suppress(StorageError):
            self._outcome.slip = self._kept(StateType.CANCELLED, f"The run was {how}.")
        _tell(self._outcome)
        raise Abort(how)

    def _kept(self, ended: StateType, message: str, *pages: ArtifactPage) -> RunReceipt:
        slip = self._slip.over(ended, message, *pages)
        slip.keep()
        return slip


@contextmanager
def track_run(kind: str, settings: FlowSettings) -> Iterator[TrackedRun]:
    """Show the run of the block as it goes on, and see to it that its end is known."""
    send_receipts()
    run, key = UUID(str(flow_run.id)), artifact_key(kind, *settings.subject)
    slip = RunReceipt.of(run)
    slip.keep()
    url = current_run()["url"]
    if url is not None:
        progress_link(url)
    tags = {*flow_run.tags, *settings.subject}
    follower = LiveRun(run, key, f"{kind} {settings.title}", tags, slip.beat)
    this = TrackedRun(key, slip, follower, _OUTCOME.get() or RunOutcome())
    try:
        with interrupts_insist(), follower, watch_progress(follower):
            yield this
    except KeyboardInterrupt:
        this.interrupted()
    except Exception as error:
        if asked_to_end():
            this.interrupted()
        this.failed(error)
        raise


def run_flow(flow: Flow[..., dict[str, Any]], settings: FlowSettings) -> dict[str, Any]:
    """Run a flow here; a server that goes away takes nothing of what has been done."""
    outcome = RunOutcome()
    token = _OUTCOME.set(outcome)
    try:
        # A run that dies here is told of by its slip.
        with without_heartbeats():
            flow(settings)
    except (Abort, httpx.HTTPError) as left:
        if not outcome.known:
            said = without_password(str(left)) or type(left).__name__
            raise FlowError(f"Prefect ended the run: {said}") from left
        _tell(outcome)
    except Exception:
        _forget(outcome)
        raise
    else:
        _forget(outcome)
    finally:
        _OUTCOME.reset(token)
    return outcome.result()


def artifact_key(*parts: str) -> str:
    """Return a key of lowercase letters, digits and dashes, as Prefect wants it."""
    text = "-".join(parts).lower()
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)


def rename_run(name: str) -> None:
    """Give the current run a name that only its data could tell."""
    if name != flow_run.name:
        with suppress(ServerUnreachable), prefect_client() as client:
            client.update_flow_run(UUID(str(flow_run.id)), name=name)


def current_run() -> dict[str, str | None]:
    """Return the id and the page of the current run; a server without pages has none."""
    identity = UUID(str(flow_run.id))
    url = url_for("flow-run", obj_id=identity)
    return {"id": str(identity), "url": url and without_password(url)}


def _report(run: str) -> str:
    """Return the link to the report of a run, if there is one: the server makes it when asked."""
    url = report_url(run)
    return url if url.startswith("http") or report_path(run).exists() else ""


def _handed(slip: RunReceipt) -> RunReceipt:
    """Give the server what the run has to show; leave Prefect if it stays away too long."""
    until, told = time.monotonic() + _PATIENCE, False
    while True:
        try:
            return slip.hand_pages()
        except ServerUnreachable as away:
            if not told:
                progress_note(
                    f"{away}: waiting for it, up to {_PATIENCE:.0f} s. What was computed is saved"
                )
            told = True
            if time.monotonic() > until:
                raise Abort(str(away)) from away
        time.sleep(_EVERY)


def _tell(outcome: RunOutcome) -> None:
    """Tell the server what it has yet to know of a run that has left Prefect."""
    if outcome.slip is None:
        return
    try:
        outcome.slip.hand_pages().tell_end()
    except ServerUnreachable as away:
        progress_note(
            f"{away}: the next command that finds it there tells it how this run has ended"
        )
        leave_at_once()
    outcome.slip = None


def _forget(outcome: RunOutcome) -> None:
    if outcome.slip is not None:
        outcome.slip.drop()


def worth_another_try(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Say whether what has failed may go right later: a network, or a cluster, that is away."""
    try:
        state.result()
    except DownloadError:
        return True
    except FlowError as error:
        return error.transient
    except Exception:
        return False
    return False


# For tasks that need more than this machine. What is computed by then is not computed again.
RETRIED: dict[str, Any] = {
    "retries": 2,
    "retry_delay_seconds": [10, 60],
    "retry_condition_fn": worth_another_try,
}
