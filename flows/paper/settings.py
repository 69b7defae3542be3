"""Settings of `ism-dask tables`, which measures the paper's tables again.

Importing this must be cheap, because `--help` waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flows.errors import SettingsError
from flows.paper.names import DATA, METHODS, PARTS
from flows.settings.base import FlowSettings, import_choices, keep_runs_setting
from flows.settings.fields import data_setting, run_setting, solver_setting

ALL = "all"


def _choice_setting(about: str, names: Iterable[str], title: str) -> Any:
    return data_setting(
        ALL,
        about=f"{about}: some of {', '.join(names)}, with commas between.",
        decides="course",
        title=title,
    )


@dataclass(frozen=True, kw_only=True)
class TablesSettings(FlowSettings):
    """Settings of a run of the paper's Tables 4 and 5, Figures 1a and 1b, and further parts."""

    parts: str = _choice_setting("What to measure", PARTS, "Parts")
    data: str = _choice_setting("Data sets of the tables", DATA, "Data sets")
    methods: str = _choice_setting("Methods of the tables", METHODS, "Methods")
    cap: float = solver_setting(
        600.0,
        about="Seconds that a method may take for one fold. One that was over the cap keeps the "
        "best W it had, says so, and has no further folds.",
        title="Seconds a fold",
        gt=0,
    )
    budget: float = solver_setting(
        1800.0,
        about="Seconds that a method may take for all folds of a cell: when they are over no other "
        "fold is begun, and the cell says how many there were.",
        decides="course",
        title="Seconds a cell",
        gt=0,
    )
    folds: int = solver_setting(10, about="Number of folds.", ge=2)
    seed: int = solver_setting(0, about="Seed of every random choice.", ge=0, le=2**32 - 1)
    run: str = run_setting(
        "tables",
        about="Name of the saved run. What it has measured already is not measured again.",
        decides="nothing",
    )
    keep_runs: int | None = keep_runs_setting()
    force: bool = run_setting(
        False, about="Measure everything again.", decides="nothing", flags=("--force",)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, names in (("parts", PARTS), ("data", DATA), ("methods", METHODS)):
            self._chosen(name, names)
        import_choices().check_run_name(self.run)

    @property
    def title(self) -> str:
        """The title of the run: `tables` and the chosen parts, data sets and methods."""
        some = [value for value in (self.parts, self.data, self.methods) if value != ALL]
        return " ".join(["tables", *some])

    @property
    def subject(self) -> tuple[str, ...]:
        """The tags of the run."""
        return ("paper",)

    @property
    def chosen_parts(self) -> tuple[str, ...]:
        """The chosen names of `PARTS`."""
        return self._chosen("parts", PARTS)

    @property
    def chosen_data(self) -> tuple[str, ...]:
        """The chosen names of `DATA`."""
        return self._chosen("data", DATA)

    @property
    def chosen_methods(self) -> tuple[str, ...]:
        """The chosen names of `METHODS`."""
        return self._chosen("methods", METHODS)

    def _chosen(self, setting_name: str, all_names: Iterable[str]) -> tuple[str, ...]:
        """Return the names chosen by a setting, in the order of all names.

        Raise a SettingsError if one of them is unknown.
        """
        text, names = getattr(self, setting_name), list(all_names)
        chosen = names if text == ALL else [name.strip() for name in text.split(",")]
        bad = [name for name in chosen if name not in names]
        if bad:
            hint = import_choices().did_you_mean(bad[0], names)
            raise SettingsError(
                f"`{setting_name}` has {bad[0]!r}; {hint}expected {ALL}, or some of "
                f"{', '.join(names)}"
            )
        return tuple(name for name in names if name in chosen)
