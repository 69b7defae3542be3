"""Resumable runs: they save checkpoints and results, survive lost clusters, and can be continued.

A run holds a lease while a process computes it. Its fits save checkpoints, and the parts that it
consists of (such as folds) save their results. A later process, or a new Dask cluster, continues
from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any, TypeVar

from flows.compute import joined_cluster
from flows.errors import ClusterLost, FlowError
from flows.progress.watching import progress_log, progress_note, report_progress, run_context
from flows.runs.published import History
from flows.services.leases import HeldLease, hold_lease
from flows.settings.fields import deciding
from flows.settings.runs import SavedRunSettings
from ism_dask.observe import saving_checkpoints
from ism_dask.records.checkpoint import Checkpoint, CheckpointedFit
from storage import (
    Checkpoints,
    DamagedStore,
    PartialResults,
    open_run,
    run_folder,
    runs_folder,
    saved_run_path,
)
from storage.atomic import explain_os_errors, make_folder

T = TypeVar("T")

# A fit gives up after so many lost clusters in a row, without an iteration between them.
_MAX_LOSSES = 3


def fit_on_cluster(
    settings: SavedRunSettings, this: ResumableRun, work: Callable[[], T], **piece: Any
) -> T:
    """Return the result of the fit `work`, computed on a Dask cluster or, without one, here.

    `work` continues from its last checkpoint, also after the cluster was lost and joined again.
    `piece` is as for `ResumableRun.fit`.
    """
    with joined_cluster(settings.scheduler) as session:
        if session is None:
            with this.fit(**piece):
                return work()
        losses = 0
        while True:
            before = this.n_saves
            try:
                with session.watched(settings.stall), this.fit(**piece):
                    return work()
            except ClusterLost as lost:
                losses = 1 if this.n_saves > before else losses + 1
                if losses == _MAX_LOSSES:
                    raise ClusterLost(
                        f"{lost.what}, the last of {losses} such losses without an iteration "
                        "between them",
                        lost.advice,
                    ) from lost
                progress_note(f"{lost.what}: joining it again, to go on from the last checkpoint")
                try:
                    session.renew()
                except FlowError as error:
                    what = f"{lost.what}, and could not be joined again"
                    raise ClusterLost(what, str(error)) from error


@dataclass(eq=False)
class ResumableRun:
    """A run that this process computes, with its saved checkpoints and results."""

    run: str
    # All that decides the result, in plain JSON: settings, digests of data, version. Checkpoints
    # and results that were saved under other values are not used.
    identity: Mapping[str, Any]
    checkpoint_interval: float  # least number of seconds between two checkpoints of a fit
    lease: HeldLease
    n_saves: int = 0  # checkpoints and parts that this process has saved of the run

    @contextmanager
    def fit(self, **piece: Any) -> Iterator[FitCheckpoints]:
        """Save checkpoints of the fit in the block, which continues from the newest one, if any.

        `piece` tells the fits of the run apart if there are several, such as `fold=3`. Yields the
        object that saves the checkpoints.
        """
        checkpoints = FitCheckpoints(self, piece)
        try:
            with saving_checkpoints(CheckpointedFit(checkpoints.start, checkpoints.offer)):
                yield checkpoints
        except BaseException:
            # The fit was interrupted or lost its cluster: save its newest checkpoint first.
            checkpoints.flush()
            raise
        self.lease.check()

    def find(self, key: str) -> Any:
        """Return what is saved of a part of the run, or None; what is damaged is computed again."""
        try:
            return PartialResults.of_run(self.run).find(key, self.identity)
        except DamagedStore as error:
            progress_note(f"{error} It is computed again")
            return None

    def save(self, key: str, result: Any) -> None:
        """Save a part of the run; raise FlowError if another process has taken the lease over."""
        self.lease.check()
        PartialResults.of_run(self.run).save(key, self.identity, result)
        self.n_saves += 1


class FitCheckpoints:
    """Saves the checkpoints of a fit, at most one in so many seconds.

    `piece` is as for `ResumableRun.fit`. `start` is the checkpoint that the fit continues from, or
    None.
    """

    def __init__(self, this: ResumableRun, piece: Mapping[str, Any]) -> None:
        self._this = this
        self._identity = {**this.identity, **piece}
        self._store = Checkpoints.of_run(this.run)
        self.start = self._store.find(self._identity, progress_note)
        if self.start is not None:
            where = [f"{name} {value}" for name, value in piece.items()] + [self.start.progress]
            progress_note(f"resuming at {', '.join(where)} (--afresh starts from the beginning)")
        elif not piece and self._store.find() is not None:
            progress_note("it starts afresh: data or settings have changed since it was cut off")
        self._pending: Checkpoint | None = None
        self._last_save = time.monotonic()

    def offer(self, checkpoint: Checkpoint) -> None:
        """Accept the newest checkpoint, and save it unless the last one was saved just before."""
        self._pending = checkpoint
        if time.monotonic() - self._last_save >= self._this.checkpoint_interval:
            self.flush()

    def flush(self) -> None:
        """Save the pending checkpoint, if there is one; it is not tried again if that fails."""
        if self._pending is None:
            return
        try:
            self._this.lease.check()
            self._store.save(self._identity, self._pending)
        except Exception:
            self._pending = None
            raise
        self._this.n_saves += 1
        self._pending, self._last_save = None, time.monotonic()


@contextmanager
def resumable_run(
    run: str,
    kind: str,
    settings: SavedRunSettings,
    known: Mapping[str, Any],
    *,
    size: Mapping[str, Any] = MappingProxyType({}),
    about: str = "",
    replaces: str = "",
) -> Iterator[ResumableRun]:
    """Hold the lease of a run in the block; when it ends well, remove checkpoints and part results.

    `known` are digests of data and the like, in plain JSON, which decide the result beside the
    settings; `size` has those settings that follow from the data, for the name of the flow run, and
    `about` puts the data into words, for the log. `replaces` is the kind of a run that
    may be replaced without `--force`.
    """
    identity = {**deciding(settings), **known, "kind": kind, "version": version("ism-dask")}
    run_context().describe(replace(settings, run=run, **size))
    results = PartialResults.of_run(run)
    with hold_lease(run, kind, settings.to_json(), lambda: bool(results.keys())) as lease:
        check_name_is_free(run, force=settings.force, replaces=replaces)
        this = ResumableRun(run, identity, settings.checkpoint, lease)
        if lease.previous is not None:
            progress_note(f"this run was started before: {lease.previous.description}")
        if settings.afresh:
            results.clear()
        report_progress(0.0, f"{kind} {settings.title}")
        progress_log(f"data: {about}")
        try:
            yield this
        except KeyboardInterrupt:
            if results.keys():
                progress_note(f"`ism-dask resume {run}` goes on from what is saved of it")
            raise
        lease.check()
        results.clear()
    report_progress(1.0, f"saved {run}")


def check_name_is_free(run: str, *, force: bool, replaces: str = "") -> None:
    """Raise an error if a saved run has that name, or if its folder cannot be written to.

    A saved run may be replaced with `force`, or if it is of the kind `replaces`.
    """
    folder, is_saved = run_folder(run), saved_run_path(run) is not None
    if is_saved and not force and not (replaces and open_run(run).kind == replaces):
        published = ", which refreshes publish" if History(run).file else ""
        raise FlowError(
            f"there is a run {run!r} already, at {folder}{published}; replace it with --force, or "
            "choose another name with `run`",
            "run",
        )
    # Try to write now: a full or read-only disk should fail a run before its work, not after.
    make_folder(runs_folder())
    with explain_os_errors(folder), TemporaryFile(dir=folder if folder.exists() else runs_folder()):
        pass
