"""Which run of a history is published; publish an earlier one; remove the files of old ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from flows.errors import FlowError, RunHeldError, SettingsError
from flows.results.refresh import PUBLISHED, RefreshResult
from storage import (
    DamagedStore,
    mark_pruned,
    model_hash,
    publish_run,
    read_history,
    refresh_lock,
    remove_run,
)


def history_of(name: str) -> list[RefreshResult]:
    """Return the results of all refreshes of a run, oldest first."""
    return [RefreshResult.from_json(each) for each in read_history(name)]


def published_run(name: str) -> str | None:
    """Return which run of the history is the published one, None if it is none of them."""
    return _published(name, history_of(name))


@contextmanager
def refreshing(name: str) -> Iterator[None]:
    """Lock the refreshes of a run during the block; raise RunHeldError if another does."""
    try:
        with refresh_lock(name):
            yield
    except BlockingIOError as error:
        raise RunHeldError(
            f"another process refreshes {name!r} now; wait until it has ended"
        ) from error


def rollback(run: str) -> tuple[str, str]:
    """Publish another run of a history; return the name of the published run, and the run.

    Parameters
    ----------
    run : str
        A run of a history, such as `sales-0003`; or the name of the published run, for the one
        that was published before it.
    """
    is_name = bool(read_history(run))
    name = run if is_name else run.rpartition("-")[0]
    if not (name and read_history(name)):
        raise SettingsError(f"{run!r} is no run of a refresh")
    with refreshing(name):
        history = history_of(name)
        target = _run_to_go_back_to(name, history) if is_name else _checked(run, history)
        publish_run(target, name)
    return name, target


def prune(name: str, keep: int) -> None:
    """Remove the files of old runs of a history, whose records stay; a refresh calls it.

    The newest `keep` runs keep theirs, and so do the published one and the one before it.
    """
    history = history_of(name)
    runs = list(dict.fromkeys(each.run for each in history))
    current = _published(name, history)
    kept = {*runs[-keep:], current, _run_before(current, history)}
    old = {each.run: each for each in history if each.run not in kept}
    if not all(each.pruned for each in old.values()):
        mark_pruned(name, old)
    # Marked first: a pruning that was killed is completed by the next one. Another run that has
    # the name since then stays.
    for run, each in old.items():
        with suppress(DamagedStore):
            if model_hash(run) == each.model_hash:
                remove_run(run)


def _published(name: str, history: Sequence[RefreshResult]) -> str | None:
    published = model_hash(name)
    runs = [each.run for each in history if each.model_hash == published]
    return runs[-1] if published and runs else None


def _run_before(current: str | None, history: Sequence[RefreshResult]) -> str | None:
    """Return the run that was published before the present one, None if there is none."""
    published = [each.run for each in history if each.state == PUBLISHED and not each.pruned]
    earlier = published[: published.index(current)] if current in published else published
    return earlier[-1] if earlier else None


def _run_to_go_back_to(name: str, history: Sequence[RefreshResult]) -> str:
    current = _published(name, history)
    earlier = _run_before(current, history)
    if earlier is None:
        raise FlowError(f"no run of {name!r} was published before {current}")
    return earlier


def _checked(run: str, history: Sequence[RefreshResult]) -> str:
    """Return a run; raise a SettingsError unless it is one of a history, with its files."""
    if run in (each.run for each in history if each.pruned):
        raise SettingsError(
            f"the files of {run!r} were removed, for it is an old run (`keep` in [refresh] sets "
            "how many stay)"
        )
    known = list(dict.fromkeys(each.run for each in history if not each.pruned))
    if run not in known:
        raise SettingsError(f"{run!r} is no run of a refresh; there are {', '.join(known)}")
    return run
