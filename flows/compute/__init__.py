"""The Dask clusters that a run can compute its tiles on, and how it joins them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from flows.progress.watching import in_context, run_context

if TYPE_CHECKING:
    from flows.compute.session import Session


@contextmanager
def joined_cluster(scheduler: str | None) -> Iterator[Session | None]:
    """Join the cluster that `scheduler` names, so that shards compute on it; None joins nothing.

    A cluster that was started for the block ends with it. Within the block the same name leads to
    the same session, also after `renew`: the folds of a cross-validation share it.
    """
    current = run_context().cluster
    if scheduler is None:
        yield None
    elif current is not None and current[0] == scheduler:
        yield current[1]
    else:
        # A run without a cluster need not wait for these imports.
        from flows.compute.connection import quiet_logs  # noqa: PLC0415
        from flows.compute.session import Session  # noqa: PLC0415

        with (
            quiet_logs(),
            closing(Session(scheduler)) as session,
            in_context(cluster=(scheduler, session)),
        ):
            yield session
