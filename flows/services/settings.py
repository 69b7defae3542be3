"""The settings of `ism-dask up`. This module is cheap to import, because `--help` waits for it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from flows.errors import SettingsError
from flows.settings.fields import Checked, setting

POOL = "local-process"


def _port_setting(what: str, usual: int) -> Any:
    return setting(
        None, about=f"Port of the {what}. Default: the last one, or {usual}.", ge=1, le=65535
    )


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(Checked):
    """The settings of the services. A port that is not set is the default, or any free one."""

    workers: int | None = setting(None, about="Dask workers. Default: one for each core.", ge=1)
    threads: int | None = setting(None, about="Threads of each Dask worker. Default: 1.", ge=1)
    memory: str | None = setting(
        None, about="Memory of each Dask worker, such as 4GB. Default: a fair share."
    )
    tls: bool = setting(
        False,
        about="Encrypt Dask, with certificates made for it: only who may read them can join.",
    )
    port: int | None = _port_setting("Prefect server", 4200)
    scheduler_port: int | None = _port_setting("Dask scheduler", 8786)
    dashboard_port: int | None = _port_setting("Dask dashboard", 8787)
    report_port: int | None = _port_setting("report server", 8788)
    pool: str | None = setting(None, about=f"Work pool whose runs are taken up. Default: {POOL}.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            _check_memory(self.memory)
        if self.pool is not None and (not self.pool.strip() or "/" in self.pool):
            raise SettingsError(f"`pool` is {self.pool!r}; expected the name of a work pool")

    def arguments(self) -> list[str]:
        """Return the settings as arguments of the command line."""
        given = {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self)}
        return [
            f"--{name}" if value is True else f"--{name}={value}"
            for name, value in given.items()
            if value not in (None, False)
        ]


def _check_memory(memory: str) -> None:
    from dask.utils import parse_bytes  # noqa: PLC0415

    try:
        size = parse_bytes(memory)
    except ValueError:
        size = 0
    if size < 1:
        raise SettingsError(f"`memory` is {memory!r}; expected a size such as 4GB or 500MiB")
