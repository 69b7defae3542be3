"""Settings that every flow has: what it is called, and which data it takes."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.interface.fields import as_form, check_bounds, setting

if TYPE_CHECKING:
    from types import ModuleType


def registries() -> ModuleType:
    """Return the module with the registries that settings are checked against."""
    # It imports the whole scientific stack: a second that `--help` need not take.
    from flows.settings import choices  # noqa: PLC0415

    return choices


def _dataset_names() -> list[str]:
    return list(registries().dataset_names())


@dataclass(frozen=True, kw_only=True)
class FlowSettings(ABC):
    """What any flow is asked to do."""

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    @abstractmethod
    def title(self) -> str:
        """What the run is called."""

    @property
    @abstractmethod
    def subject(self) -> tuple[str, ...]:
        """What runs are told apart by: the tags of a run, and the names of what it shows."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the form of the Prefect UI, which asks by way of pydantic."""
        return as_form(cls, handler.resolve_ref_schema(handler(core_schema)))


@dataclass(frozen=True, kw_only=True)
class DataSettings(FlowSettings):
    """Which data."""

    dataset: str = setting(
        about="Name of a data set; `ism-dask datasets` lists them.",
        title="Data set",
        early=True,
        names=_dataset_names,
    )
    split: str | None = setting(None, about="Part of the data set. Default: its first.", early=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        registries().check_name(self.dataset, self.split)

    @property
    def title(self) -> str:
        """What the run is called."""
        return self.dataset

    @property
    def subject(self) -> tuple[str, ...]:
        """What runs are told apart by."""
        return (self.dataset,)


@dataclass(frozen=True, kw_only=True)
class IngestSettings(DataSettings):
    """A data set to be read, checked and stored."""

    force: bool = setting(False, about="Replace what is stored.", flags=("--force",))
