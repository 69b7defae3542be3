"""Settings of the flow `refresh`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.errors import SettingsError
from flows.interface.fields import run_setting, setting
from flows.interface.toml_tables import parse_toml
from flows.settings.base import FlowSettings


@dataclass(frozen=True, kw_only=True)
class RefreshSettings(FlowSettings):
    """Settings of a refresh: the run file, which has all others."""

    file: str = setting(about="A run file (.toml) with the tables [data] and [fit].", early=True)
    force: bool = run_setting(
        False,
        about="Fit again even if the source has not changed.",
        decides="nothing",
        flags=("--force",),
    )

    @property
    def title(self) -> str:
        """Name of the flow run: that of the published run, or of a file that cannot be read."""
        try:
            name = parse_toml(Path(self.file), "run file", "").get("run")
        except SettingsError:  # the flow itself reports it
            name = None
        return name if isinstance(name, str) else Path(self.file).stem

    @property
    def subject(self) -> tuple[str, ...]:
        """Words that tell runs apart: the name of the published run."""
        return (self.title,)
