"""Resumable runs: they save checkpoints and results, survive lost clusters, and can be continued.

A run holds a lease while a process computes it. Its fits save checkpoints, and the parts that it
consists of (such as folds) save their results. A later process, or a new Dask cluster, continues
from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeVar

from flows.compute.health import ClusterLost
from flows.compute.session import Session, joined_cluster
from flows.errors import FlowError
from flows.interface.progress import progress_note
from flows.interface.run_log import ThinnedLog
from flows.runs.lease import HeldLease, hold_lease
from flows.runs.published import publish_newest
from flows.runs.saving import check_name_is_free
from flows.settings.fields import deciding
from flows.settings.runs import NamedRunSettings, SavedRunSettings
from ism_dask.records.checkpoint import Checkpoint, CheckpointedFit, saving_checkpoints
from storage import Checkpoints, DamagedStore, PartialResults, run_folder
from storage.runs import STALLED

T = TypeVar("T")

# A fit gives up after so many lost clusters in a row, without an iteration between them.
_MAX_LOSSES = 3
# Lines on checkpoints in the log of a run, and the number of checkpoints for which they suffice.
_LINES, _CHECKPOINTS = 9, 10_000


def fit_on_cluster(
    settings: SavedRunSettings, this: ResumableRun, work: Callable[[], T], rows: int, **piece: Any
) -> T:
    """Return the result of the fit `work`, computed on the Dask cluster that `settings` name.

    If the cluster is lost, join it again and repeat `work`, which continues from its last
    checkpoint. Without a cluster, `work` runs in this process.

    Parameters
    ----------
    settings : SavedRunSettings
    this : ResumableRun
    work : callable
        Makes one fit, which continues from its checkpoint if it has one.
    rows : int
        Number of rows of the fit.
    **piece : Any
        Which fit of the run it is, as for `ResumableRun.fit`.
    """

    def fit() -> T:
        with this.fit(rows, **piece):
            return work()

    return on_cluster(settings.scheduler, settings.stall, this, fit)


def on_cluster(scheduler: str | None, stall: float, this: ResumableRun, work: Callable[[], T]) -> T:
    """Return the result of `work`, computed on a Dask cluster or, without one, in this process.

    Parameters
    ----------
    scheduler : str or None
        The place, as in the settings.
    stall : float
        Seconds without a finished task after which the cluster counts as lost.
    this : ResumableRun
    work : callable
        Continues from what it has saved of this run; repeated after each loss of the cluster.
    """
    with joined_cluster(scheduler) as session:
        if session is None:
            return work()
        losses = 0
        while True:
            before = this.saves.number
            try:
                folder = run_folder(this.run) / STALLED
                with session.watched(stall, folder, this.lease.count_workers_lost):
                    return work()
            except ClusterLost as lost:
                losses = 1 if this.saves.number > before else losses + 1
                this.lease.count_cluster_lost()
                _join_again(session, lost, losses)


class ClusterAwayError(FlowError):
    """Raised if a lost cluster cannot be joined again, or is lost again and again."""

    transient = True


def _join_again(session: Session, lost: ClusterLost, losses: int) -> None:
    """Join the lost cluster again; raise ClusterAwayError if that fails or losses are too many."""
    if losses == _MAX_LOSSES:
        raise ClusterAwayError(
            f"{lost.what}, the last of {losses} such losses without an iteration between them; "
            f"{lost.advice}"
        ) from lost
    progress_note(f"{lost.what}: joining it again, to go on from the last checkpoint")
    try:
        session.renew()
    except FlowError as error:
        raise ClusterAwayError(f"{lost.what}, and could not be joined again: {error}") from error


Result = Mapping[str, Any]


@dataclass
class SaveCount:
    """How many checkpoints and parts this process has saved of a run."""

    number: int = 0


@dataclass(frozen=True)
class ResumableRun:
    """A run that this process computes, with its saved checkpoints and results.

    Attributes
    ----------
    run : str
    identity : Mapping
        All that decides the result of the run, in plain JSON: settings, digests of data, version.
        Checkpoints and results that were saved under other values are not used.
    checkpoint_interval : float
        Least number of seconds between two checkpoints of a fit.
    lease : HeldLease
    log : ThinnedLog
        The lines on checkpoints in the log of the run.
    saves : SaveCount
    """

    run: str
    identity: Mapping[str, Any]
    checkpoint_interval: float
    lease: HeldLease
    log: ThinnedLog
    saves: SaveCount = field(default_factory=SaveCount)

    @contextmanager
    def fit(self, rows: int, **piece: Any) -> Iterator[CheckpointThrottle]:
        """Save checkpoints of the fit in the block, which continues from the newest one, if any.

        `rows` is the number of rows of the fit. `piece` tells the fits of the run apart if there
        are several, such as `fold=3`. Yields the object that saves the checkpoints.
        """
        identity = {**self.identity, **piece}
        checkpoints = Checkpoints.of_run(self.run)
        start = checkpoints.find(identity, progress_note)
        which = "".join(f"{name} {value}, " for name, value in piece.items())
        if start is not None:
            where = f"{which}{start.progress}"
            progress_note(f"resuming at {where} (--afresh starts from the beginning)")

        def keep(checkpoint: Checkpoint) -> None:
            self.lease.check()
            checkpoints.save(identity, checkpoint)
            self.saves.number += 1
            self.log.add(f"checkpoint saved: {which}to go on at {checkpoint.progress}")

        throttle = CheckpointThrottle(keep, self.checkpoint_interval)
        speed = FitSpeed(self.lease, rows, start or Checkpoint())

        def on_checkpoint(checkpoint: Checkpoint) -> None:
            speed.update(checkpoint)
            throttle.offer(checkpoint)

        try:
            fit = CheckpointedFit(start, on_checkpoint)
            with saving_checkpoints(fit):
                yield throttle
        except BaseException:
            # The fit was interrupted or lost its cluster: save its newest checkpoint first.
            throttle.flush_after_error()
            raise
        self.lease.check()

    def compute_or_restore(
        self, name: str, number: int, work: Callable[[], Result]
    ) -> dict[str, Any]:
        """Return the saved result of a part of the run, or compute it by `work` and save it."""
        result = self.restored(name, number)
        if result is None:
            result = dict(work())
            self.save_part(name, number, result)
        return result

    def restored(self, name: str, number: int) -> dict[str, Any] | None:
        """Return the saved result of a part of the run, or None if there is none."""
        saved: dict[str, Any] | None = self._part(name, number).find(f"{name}-{number}")
        return saved

    def save_part(self, name: str, number: int, result: Result) -> None:
        """Save the result of a part of the run."""
        self._part(name, number).save(f"{name}-{number}", result)
        self.saves.number += 1

    def _part(self, name: str, number: int) -> SavedResults:
        return SavedResults(self, {**self.identity, name: number})


class SavedResults:
    """The partial results of one fit of a run, saved as long as this process has its lease.

    Parameters
    ----------
    run : ResumableRun
    request : Mapping
        All that decides the result of the fit, in plain JSON.
    """

    def __init__(self, run: ResumableRun, request: Mapping[str, Any]) -> None:
        self.run, self._request = run, request
        self._store = PartialResults.of_run(run.run)

    def find(self, key: str) -> Any:
        """Return a saved result, or None; a damaged one is reported, and computed again."""
        try:
            return self._store.find(key, self._request)
        except DamagedStore as error:
            progress_note(f"{error} It is computed again")
            return None

    def save(self, key: str, result: Any) -> None:
        """Save a result; raise FlowError if another process has taken the lease over."""
        self.run.lease.check()
        self._store.save(key, self._request, result)


class FitSpeed:
    """Records in the lease of a run how far its present fit has come, and how fast it goes.

    Parameters
    ----------
    lease : HeldLease
    rows : int
        Number of rows of the fit.
    start : Checkpoint
        The checkpoint that the fit continues from; an empty one for a new fit.
    """

    def __init__(self, lease: HeldLease, rows: int, start: Checkpoint) -> None:
        self._lease, self._rows, self._before = lease, rows, start.iterations
        self._began = time.monotonic()
        self._lease.update_numbers(
            rows=rows,
            iterations=start.iterations,
            objective=start.objective,
            rows_per_second=None,
        )

    def update(self, checkpoint: Checkpoint) -> None:
        """Record the iterations, the J and the speed of the fit at a checkpoint of it."""
        done, seconds = checkpoint.iterations - self._before, time.monotonic() - self._began
        self._lease.update_numbers(
            iterations=checkpoint.iterations,
            objective=checkpoint.objective,
            rows_per_second=self._rows * done / seconds if done > 0 and seconds > 0 else None,
        )


class CheckpointThrottle:
    """Saves the checkpoints of a fit, but at most one in so many seconds.

    Parameters
    ----------
    keep : callable
        Writes a checkpoint.
    checkpoint_interval : float
        Least number of seconds between two checkpoints.
    """

    def __init__(self, keep: Callable[[Checkpoint], None], every: float) -> None:
        self._write, self._every = keep, every
        self._pending: Checkpoint | None = None
        self._last = time.monotonic()
        self._failed = False

    def offer(self, checkpoint: Checkpoint) -> None:
        """Accept the newest checkpoint, and save it unless the last one was saved just before."""
        self._pending = checkpoint
        if time.monotonic() - self._last >= self._every:
            self.flush()

    def flush_after_error(self) -> None:
        """Save the pending checkpoint of a fit that failed, unless saving it was what failed."""
        if not self._failed:
            self.flush()

    def flush(self) -> None:
        """Save the pending checkpoint, if there is one."""
        if self._pending is not None:
            try:
                self._write(self._pending)
            except Exception:
                self._failed = True
                raise
            self._pending = None
            self._last = time.monotonic()


@contextmanager
def resumable_run(
    run: str, kind: str, settings: NamedRunSettings, known: Mapping[str, Any], replaces: str = ""
) -> Iterator[ResumableRun]:
    """Hold the lease of a run in the block; when it ends well, remove checkpoints and part results.

    Parameters
    ----------
    run, kind : str
    settings : NamedRunSettings
    known : Mapping
        Digests of data and the like, in plain JSON, which decide the result beside the settings.
    replaces : str
        The part of an earlier run that may be replaced without `--force`, as for
        `check_name_is_free`.
    """
    identity = {**deciding(settings), **known, "kind": kind, "version": version("ism-dask")}
    results = PartialResults.of_run(run)
    with hold_lease(run, kind, settings.to_json(), lambda: bool(results.keys())) as lease:
        check_name_is_free(run, force=settings.force, replaces=replaces)
        this = ResumableRun(
            run, identity, settings.checkpoint_interval, lease, ThinnedLog(_LINES, _CHECKPOINTS)
        )
        if lease.previous is not None:
            progress_note(f"this run was started before: {lease.previous.description}")
        # A retry continues what the first `--afresh` attempt saved.
        if settings.afresh and not lease.is_retry:
            results.clear()
        try:
            yield this
        finally:
            this.log.close()
        lease.check()
        results.clear()
        publish_newest(run, settings.keep_runs)
