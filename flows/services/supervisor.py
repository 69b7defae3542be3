"""All services together: begun in order, looked after, and ended without a trace."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from shutil import rmtree
from types import FrameType

import psutil

from flows.errors import FlowError
from flows.services.certificates import own_certificates
from flows.services.dask import SCRATCH, DaskScheduler, DaskWorkers
from flows.services.prefect import (
    PrefectServer,
    PrefectWorker,
    check_admitted,
    others_server,
    ui_address,
)
from flows.services.records import (
    PRIVATE,
    ProcessRecord,
    family,
    forget,
    lives,
    log_path,
    process_start,
    recorded,
    services_folder,
)
from flows.services.report_server import ReportServer
from flows.services.service import (
    Service,
    StartupMessages,
    end_process,
    ensure_running,
    launch_process,
    log_end,
    restart,
    stop_processes,
)
from flows.services.settings import ServiceSettings
from flows.services.status import NAME, RunningServices, running_services
from storage.atomic import explain_os_errors, lock_file

# In the order they are begun: each may need those before it, and ends before them.
KINDS: tuple[type[Service], ...] = (
    PrefectServer,
    ReportServer,
    DaskScheduler,
    DaskWorkers,
    PrefectWorker,
)

_EVERY = 0.5
# A service that ends is started again so often, after waiting 1, 2 and 4 times this; what ended
# more than ten minutes ago is forgotten.
_RESTARTS = 3
_PAUSE = 1.0
_FORGOTTEN_AFTER = 600.0
# What the slowest end of all services takes, and then some.
_STOPS_WITHIN = 120.0
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def keep_up(
    wishes: ServiceSettings,
    telling: StartupMessages,
    shown: Callable[[RunningServices, bool], None],
) -> None:
    """Keep all services up until somebody interrupts, then end them.

    Parameters
    ----------
    wishes : Wishes
    telling : Telling
    shown : callable
        Called once with where everything is, and whether another process keeps it up: then
        there is nothing to wait for.
    """
    with _interruptible():
        members = _begin(wishes, telling)
        if members is None:
            shown(running_services() or RunningServices(), True)
            return
        try:
            shown(running_services() or RunningServices(), False)
            _look_after(members, telling)
        except KeyboardInterrupt:  # it is how this is meant to end
            with suppress(OSError):  # be it that the terminal has gone
                telling.tell("ending all of it ...")
        finally:
            _ignore_endings()
            with _gate():
                _end_all()


def leave_up(wishes: ServiceSettings, telling: StartupMessages) -> tuple[RunningServices, bool]:
    """Bring all services up, leave them to a process of its own, and return as `shown` is told."""
    with _interruptible():
        if _begin(wishes, telling) is None:
            return running_services() or RunningServices(), True
        try:
            _hand_over(wishes)
        except BaseException:
            _ignore_endings()
            stop_all()
            raise
        return running_services() or RunningServices(), False


def stop_all() -> list[ProcessRecord]:
    """End all services, whoever has begun them; return the records of those that ran."""
    if not services_folder().is_dir():
        return []
    ran = [record for name in (NAME, *_names()) if (record := recorded(name))]
    keeper = recorded(NAME)
    process = keeper.process if keeper else None
    if process is not None:
        # It may be at the start, of which it has to undo what it has done.
        stop_processes({process}, _STOPS_WITHIN)
    with _gate():
        if recorded(NAME) is None:  # nobody has begun again
            _end_all()
    return ran


def _names() -> list[str]:
    return [kind.name for kind in KINDS]


@contextmanager
def _gate() -> Iterator[None]:
    """Let one process at a time begin or end services."""
    with explain_os_errors(services_folder()):
        services_folder().mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with lock_file(log_path(NAME)):
            yield


def _begin(wishes: ServiceSettings, telling: StartupMessages) -> list[Service] | None:
    """Return the services that run now, in order, or None if another process keeps them up."""
    with _gate():
        if recorded(NAME) is not None:
            _check_encrypted(wishes)
            return None
        _write_own()
        there = [kind for kind in KINDS if recorded(kind.name)]
        try:
            return _begun(wishes, telling)
        except BaseException:
            _ignore_endings()
            _end(kind for kind in KINDS if kind not in there)
            raise


def _check_encrypted(wishes: ServiceSettings) -> None:
    """Raise FlowError where what runs already is less than was asked for."""
    scheduler = recorded(DaskScheduler.name)
    if wishes.tls and scheduler and not scheduler.options.get("tls"):
        raise FlowError(
            f"a Dask scheduler without TLS runs already, at {scheduler.address}; end it with "
            "`ism-dask up --stop`, and start it again with --tls"
        )


def _begun(wishes: ServiceSettings, telling: StartupMessages) -> list[Service]:
    others = others_server(wishes.port)
    own = [] if others else [PrefectServer(port=wishes.port)]
    if wishes.tls and recorded(DaskScheduler.name) is None:
        own_certificates().make()  # restarted services use the same
    dask = DaskScheduler(
        port=wishes.scheduler_port, dashboard_port=wishes.dashboard_port, tls=wishes.tls or None
    )
    first = ensure_running([*own, ReportServer(port=wishes.report_port), dask], telling)
    api, scheduler = others or first[0].address, first[-1]
    check_admitted(api)
    workers = DaskWorkers(
        scheduler=scheduler.address,
        monitor=scheduler.page,
        workers=wishes.workers,
        threads=wishes.threads,
        memory=wishes.memory,
    )
    worker = PrefectWorker(api=api, pool=wishes.pool)
    second = ensure_running([workers, worker], telling)
    _write_own(api, ui_address(api))
    return [*first, *second]


def _write_own(address: str = "", page: str | None = None) -> None:
    """Keep the record of this process; it has an address when everything is up."""
    ProcessRecord(NAME, os.getpid(), process_start(psutil.Process()), address, page).write()


def _hand_over(wishes: ServiceSettings) -> None:
    """Let another process find the services that are up, and look after them from now on."""
    forget(NAME)
    keeper = launch_process(["flows.cli", "up", "--quiet", *wishes.arguments()], NAME, "wb", {})
    while lives(keeper):
        record = recorded(NAME)
        if record and record.address:
            return
        time.sleep(0.1)
    if recorded(NAME) is None:  # else another one was faster
        raise FlowError(f"the process that is to look after the services ended; {log_end(NAME)}")


def _look_after(members: list[Service], telling: StartupMessages) -> None:
    """Start again what ends, until somebody interrupts or it ends too often."""
    ends: dict[str, list[float]] = {service.name: [] for service in members}
    while True:
        time.sleep(_EVERY)
        for service in members:
            if recorded(service.name) is None:
                recent = [at for at in ends[service.name] if at > _now() - _FORGOTTEN_AFTER]
                ends[service.name] = [*recent, _now()]
                _revive(service, len(recent), telling)


def _revive(service: Service, failures: int, telling: StartupMessages) -> None:
    if failures == _RESTARTS:
        raise FlowError(
            f"the {service.title} ended for the {failures + 1}th time in short order, so all else "
            f"was ended too; {log_end(service.name)}"
        )
    seconds = _PAUSE * 2**failures
    what = f"the {service.title} ended; to be started again in {seconds:g} s"
    _complain(f"{what}; {log_end(service.name)}")
    time.sleep(seconds)
    try:
        restart(service, telling)
    except FlowError as error:
        _complain(str(error))  # and is seen to have ended at the next look


def _complain(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone, which is no reason to stop
        print("ism-dask:", text, file=sys.stderr, flush=True)


def _now() -> float:
    return time.monotonic()


def _end_all() -> None:
    """End every service, then whatever they have left behind."""
    _end(KINDS)
    stop_processes(set(family()))
    rmtree(services_folder() / SCRATCH, ignore_errors=True)
    for draft in services_folder().glob("*.new"):  # of a record, by a process that was killed
        draft.unlink(missing_ok=True)


def _end(kinds: Iterable[type[Service]]) -> None:
    """End services, the last begun first, and this process's part in it."""
    for kind in reversed(list(kinds)):
        end_process(kind)
    if recorded(DaskScheduler.name) is None:
        own_certificates().remove()
    forget(NAME)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let every wish to end the process be a KeyboardInterrupt, once: ending takes its time."""
    # Whoever is started with SIGHUP ignored, by nohup, is to survive the terminal. SIGINT is
    # ignored behind the & of a script, and those that we start would not hear of it either.
    caught = [each for each in _ENDINGS if each is not signal.SIGHUP or not _ignored(each)]

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        _ignore_endings()
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in caught}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ignore_endings() -> None:
    """Let nobody interrupt what ends services: half of it would be worse than none."""
    for each in _ENDINGS:
        signal.signal(each, signal.SIG_IGN)


def _ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN
