"""Settings of the flow `refresh`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from flows.errors import SettingsError
from flows.settings.base import FlowSettings
from flows.settings.fields import saving_setting, setting

if TYPE_CHECKING:
    from flows.settings.run_file import RunFile


@dataclass(frozen=True, kw_only=True)
class RefreshSettings(FlowSettings):
    """Settings of a refresh: the run file, which has all others."""

    apart_by: ClassVar[tuple[str, ...]] = ("title",)
    file: str = setting(about="A run file (.toml) with the tables [data], [fit] and [refresh].")
    force: bool = saving_setting(False, about="Fit again even if the source has not changed.")
    afresh: bool = saving_setting(False, about="Fit from the beginning, not from a checkpoint.")

    @cached_property
    def plan(self) -> RunFile:
        """The run file, which is read once; raises SettingsError for one that is not valid."""
        from flows.settings.run_file import read_run_file  # noqa: PLC0415 - imports pydantic

        return read_run_file(Path(self.file), force=self.force, afresh=self.afresh)

    @property
    def title(self) -> str:
        """Name of the flow run: that of the published run, or of a file that cannot be read."""
        try:
            name = self.plan.settings.run
        except SettingsError:  # the flow itself reports it
            name = None
        return name or Path(self.file).stem
