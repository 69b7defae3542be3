"""What `ism-dask tables` is asked to do. Importing this is cheap, for `--help` waits for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flows.errors import SettingsError
from flows.interface.fields import setting
from flows.paper.names import DATA, METHODS, PARTS
from flows.settings.base import FlowSettings

ALL = "all"
# Bounds and places that do not say what is measured.
_NOT_ASKED = ("parts", "data", "methods", "budget", "run", "force")


def _list(about: str, names: Iterable[str], title: str) -> Any:
    return setting(
        ALL,
        about=f"{about}: some of {', '.join(names)}, with commas between.",
        title=title,
        early=True,
    )


@dataclass(frozen=True, kw_only=True)
class TablesSettings(FlowSettings):
    """The paper's Tables 4 and 5 and Figures 1a and 1b, and what they leave out."""

    parts: str = _list("What to measure", PARTS, "Parts")
    data: str = _list("Data sets of the tables", DATA, "Data sets")
    methods: str = _list("Methods of the tables", METHODS, "Methods")
    cap: float = setting(
        600.0,
        about="Seconds that a method may take for one fold. One that was over the cap keeps the "
        "best W it had, says so, and has no further folds.",
        title="Seconds a fold",
        gt=0,
    )
    budget: float = setting(
        1800.0,
        about="Seconds that a method may take for all folds of a cell: when they are over no other "
        "fold is begun, and the cell says how many there were.",
        title="Seconds a cell",
        gt=0,
    )
    folds: int = setting(10, about="How many parts the rows are dealt into.", ge=2)
    seed: int = setting(0, about="Of everything that is drawn at random.", ge=0, le=2**32 - 1)
    run: str = setting(
        "tables",
        about="Name to keep the run under. What it has measured already is not measured again.",
    )
    force: bool = setting(False, about="Measure all of it anew.", flags=("--force",))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("parts", PARTS), ("data", DATA), ("methods", METHODS)):
            self._chosen(name, known)
        # The rules of names stand beside the storage, which `--help` does without.
        from flows.settings.choices import check_run_name  # noqa: PLC0415

        check_run_name(self.run)

    @property
    def title(self) -> str:
        """What the run is called."""
        some = [value for value in (self.parts, self.data, self.methods) if value != ALL]
        return " ".join(["tables", *some])

    @property
    def subject(self) -> tuple[str, ...]:
        """What runs are told apart by."""
        return ("paper",)

    @property
    def chosen_parts(self) -> tuple[str, ...]:
        """Names of `PARTS`."""
        return self._chosen("parts", PARTS)

    @property
    def chosen_data(self) -> tuple[str, ...]:
        """Names of `DATA`."""
        return self._chosen("data", DATA)

    @property
    def chosen_methods(self) -> tuple[str, ...]:
        """Names of `METHODS`."""
        return self._chosen("methods", METHODS)

    @property
    def asked(self) -> dict[str, Any]:
        """What results depend on."""
        told = self.to_json()
        return {name: value for name, value in told.items() if name not in _NOT_ASKED}

    def _chosen(self, setting_name: str, known: Iterable[str]) -> tuple[str, ...]:
        """Return the names of a list, in the order of those there are."""
        text, names = getattr(self, setting_name), list(known)
        wanted = names if text == ALL else [name.strip() for name in text.split(",")]
        odd = [name for name in wanted if name not in names]
        if odd:
            raise SettingsError(
                f"`{setting_name}` has {odd[0]!r}; expected {ALL}, or some of {', '.join(names)}"
            )
        return tuple(name for name in names if name in wanted)
