"""Settings of the flow `refresh`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.interface.fields import setting
from flows.settings.base import FlowSettings


@dataclass(frozen=True, kw_only=True)
class RefreshSettings(FlowSettings):
    """Settings of a refresh: the run file, which has all others."""

    file: str = setting(about="A run file (.toml) with the tables [data] and [fit].", early=True)
    force: bool = setting(
        False, about="Fit again even if the source has not changed.", flags=("--force",)
    )

    @property
    def title(self) -> str:
        """Name of the flow run: that of the file."""
        return Path(self.file).stem

    @property
    def subject(self) -> tuple[str, ...]:
        """Words that tell runs apart: the name of the file."""
        return (self.title,)
