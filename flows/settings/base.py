"""Base classes of the settings: those of any flow, and those of a flow that reads a data set."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.interface.fields import as_form, check_bounds, setting

if TYPE_CHECKING:
    from types import ModuleType


def import_choices() -> ModuleType:
    """Import and return the module with the registries that settings are checked against."""
    # It imports the whole scientific stack, which takes a second that `--help` need not wait.
    from flows.settings import choices  # noqa: PLC0415

    return choices


def _dataset_names() -> list[str]:
    return list(import_choices().dataset_names())


@dataclass(frozen=True, kw_only=True)
class FlowSettings(ABC):
    """Settings of a flow: its options on the command line and the form in the Prefect UI."""

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of the flow run, for people."""

    @property
    @abstractmethod
    def subject(self) -> tuple[str, ...]:
        """Words that tell runs apart: the tags of a flow run, and part of its artifacts' keys."""

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON schema of the form in the Prefect UI; Prefect gets it from pydantic."""
        return as_form(cls, handler.resolve_ref_schema(handler(core_schema)))


@dataclass(frozen=True, kw_only=True)
class DataSettings(FlowSettings):
    """Settings of a flow that reads a data set."""

    dataset: str = setting(
        about="Name of a data set; `ism-dask datasets` lists them.",
        title="Data set",
        early=True,
        names=_dataset_names,
    )
    split: str | None = setting(None, about="Part of the data set. Default: its first.", early=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        import_choices().check_name(self.dataset, self.split)

    @property
    def title(self) -> str:
        """Name of the flow run: the data set."""
        return self.dataset

    @property
    def subject(self) -> tuple[str, ...]:
        """Words that tell runs apart: the data set."""
        return (self.dataset,)


@dataclass(frozen=True, kw_only=True)
class IngestSettings(DataSettings):
    """Settings of the flow `ingest`, which reads, checks and stores a data set."""

    force: bool = setting(False, about="Replace what is stored.", flags=("--force",))
