"""Settings of the flow `unfold`, which places the rows of a data set in a picture."""

from __future__ import annotations

from dataclasses import dataclass

from flows.errors import SettingsError
from flows.settings.base import import_choices
from flows.settings.fields import data_setting, solver_setting
from flows.settings.runs import NamedRunSettings, components_setting

# Values of `target`: the label decides; labels are a factor of the kernel; there is no label.
AUTO, FACTOR, NO_SIDE = "auto", "factor", "none"


@dataclass(frozen=True, kw_only=True)
class UnfoldSettings(NamedRunSettings):
    """Settings of a colored maximum variance unfolding of all rows."""

    label: str | None = data_setting(
        None,
        about="The label that the picture depends on, or several numbers, separated by commas. "
        "Default: that of the data set, if it has one.",
    )
    target: str = data_setting(
        AUTO,
        about="How the label is read: as classes, or as numbers under a linear, gaussian or "
        "multiscale kernel; factor: numbers y give the kernel y y^T, as a table of authors does; "
        "none: neighbours alone decide.",
        names=lambda: [AUTO, *import_choices().TARGETS, FACTOR, NO_SIDE],
    )
    n_components: int = components_setting(
        2, about="How many coordinates, q.", title="Coordinates, q"
    )
    n_neighbors: int | None = solver_setting(
        None,
        about="How many nearest rows are neighbours of a row. Default: 10.",
        flags=("--neighbors",),
        ge=1,
    )
    n_eigenvectors: int | None = solver_setting(
        None,
        about="How many smooth functions the coordinates are made of at first. Default: 20.",
        flags=("--eigenvectors",),
        ge=1,
    )
    nu: float = solver_setting(
        1.0, about="What distances count beside the label; larger keeps them better.", gt=0
    )
    raw: bool = data_setting(
        False,
        about="Take columns in their own units; by default they are scaled to a deviation of 1.",
    )
    smooth: bool = solver_setting(
        False, about="Leave out the refinement: classes are clearer, distances come out too short."
    )
    max_iter: int = solver_setting(5000, about="Stop the refinement after so many steps.", ge=1)
    seed: int = solver_setting(0, about="Seed of every random choice.", ge=0, le=2**32 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target == NO_SIDE and self.label is not None:
            raise SettingsError(
                f"`label` is {self.label!r}, but `target` is {NO_SIDE!r}; leave one of them out"
            )

    @property
    def subject(self) -> tuple[str, ...]:
        """Words that tell runs apart: data set and kind."""
        return (self.dataset, "unfolding")
