"""Settings of the flow `refresh`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.errors import SettingsError
from flows.settings.base import FlowSettings
from flows.settings.fields import saving_setting, setting


@dataclass(frozen=True, kw_only=True)
class RefreshSettings(FlowSettings):
    """Settings of a refresh: the run file, which has all others."""

    file: str = setting(about="A run file (.toml) with the tables [data] and [fit].")
    force: bool = saving_setting(False, about="Fit again even if the source has not changed.")

    @property
    def title(self) -> str:
        """Name of the flow run: that of the published run, or of a file that cannot be read."""
        from flows.settings.toml_tables import parse_toml  # noqa: PLC0415 - imports pydantic

        try:
            name = parse_toml(Path(self.file), "run file", "").get("run")
        except SettingsError:  # the flow itself reports it
            name = None
        return name if isinstance(name, str) else Path(self.file).stem

    @property
    def subject(self) -> tuple[str, ...]:
        """Words that tell runs apart: the name of the published run."""
        return (self.title,)
