"""Settings of the flow that needs no label: `cluster`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flows.errors import SettingsError
from flows.settings.fields import (
    check_run_name,
    clusters_setting,
    components_setting,
    data_setting,
    split_names,
)
from flows.settings.runs import SavedRunSettings
from ism_dask.clustering import AVOID_WEIGHT, SCORES_WEIGHT

# Prefix of `avoid` if it names a run instead of a label.
_RUN_PREFIX = "run:"
# Default of `scores_share`.
SCORES_SHARE = 0.1
# For each paradigm of clustering, those settings on labels and their weight that it takes.
LABEL_SETTINGS: dict[str, tuple[str, ...]] = {
    "unsupervised": (),
    "semisupervised": ("mu", "scores_share"),
    "alternative": ("mu", "avoid"),
}


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(SavedRunSettings):
    """Settings of the flow `cluster`, which clusters all rows and fits W to the clusters."""

    apart_by: ClassVar[tuple[str, ...]] = ("dataset", "paradigm", "kernel")
    label: str | None = data_setting(
        None,
        about="A label to compare with: its classes are counted, and semisupervised uses some. "
        "Default: that of the data set.",
    )
    n_components: int | None = components_setting(
        about="How many new features, q. Default: the number of clusters."
    )
    paradigm: str = clusters_setting(
        "unsupervised",
        about="unsupervised, semisupervised (classes of some rows) or alternative (to --avoid).",
        names=lambda: list(LABEL_SETTINGS),
    )
    n_clusters: int | None = clusters_setting(
        None,
        about="How many clusters, k. Default: the number of classes of the label.",
        title="Clusters, k",
        flags=("--clusters", "-k"),
        ge=1,
    )
    mu: float | None = clusters_setting(
        None,
        about="semisupervised, alternative: weight of scores, or of labels to avoid, relative to "
        f"clusters. Default: {SCORES_WEIGHT}, and {AVOID_WEIGHT} for labels to avoid.",
        gt=0,
    )
    scores_share: float | None = clusters_setting(
        None,
        about="semisupervised: the share of rows whose class the fit uses. "
        f"Default: {SCORES_SHARE}.",
        gt=0,
        le=1,
    )
    avoid: str | None = clusters_setting(
        None,
        about="alternative: a label, or run:NAME for the clusters of a run; or several, separated "
        "by commas. Default: the data set's own label.",
    )
    outer_tol: float = clusters_setting(
        0.01,
        about="Stop when the eigenvalues of the embedding change by less, and W turns by an angle "
        "with a smaller sine.",
        gt=0,
    )
    max_outer: int = clusters_setting(100, about="Stop after so many rounds.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("mu", "scores_share", "avoid"):
            takers = [kind for kind, taken in LABEL_SETTINGS.items() if name in taken]
            if (value := getattr(self, name)) is not None and self.paradigm not in takers:
                raise SettingsError(
                    f"`{name}` is {value!r}, but `paradigm` is {self.paradigm!r}; only "
                    f"{' and '.join(takers)} clusters take it: leave it out, or choose another "
                    "paradigm",
                    name,
                    "paradigm",
                )
        for name in split_names(self.avoid):
            if (run := run_to_avoid(name)) is not None:
                check_run_name(run, "avoid")

    @property
    def size(self) -> str:
        """The number of clusters; empty if it is that of the classes."""
        return "" if self.n_clusters is None else f"k={self.n_clusters}"

    @property
    def sides(self) -> tuple[str, ...]:
        """The labels to avoid, without the clusters of runs."""
        return tuple(each for each in super().sides if run_to_avoid(each) is None)


def run_to_avoid(name: str) -> str | None:
    """Return the run whose clusters a name in `avoid` stands for, or None if it is a label."""
    return name.removeprefix(_RUN_PREFIX) if name.startswith(_RUN_PREFIX) else None
