"""Registry of the figures: one function for each, which measures it and checks its target.

A figure is a dict of numbers with `must`, its target in words, and `met`, whether it is met. It may
also have `table`, a list of lines with the same keys; `more_tables`, such lists by title;
`peak_limit_gb`, the most memory of all processes together; `picture`, the path below docs of a
picture that it draws; and `notes`, lines of text below the tables. A function with parameters
measures a part of its figure.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures.alternatives import alternatives, views
from benchmarks.figures.avoiding import avoid, given
from benchmarks.figures.certainty import (
    certainty,
    certainty_elsewhere,
    certainty_unseen,
)
from benchmarks.figures.certified import certified, certified_predictions
from benchmarks.figures.clustered import workers
from benchmarks.figures.conditional import given60k, level_given, power_given
from benchmarks.figures.conditions import correlated, weak, wide
from benchmarks.figures.costs import costs
from benchmarks.figures.crossings import crossover
from benchmarks.figures.definition import dense9000, engines
from benchmarks.figures.dimensions import dimensions
from benchmarks.figures.exact import tiles, tiles60k
from benchmarks.figures.few_features import sparse, supports
from benchmarks.figures.growth import slope, solver_slopes
from benchmarks.figures.heldout import accuracy, kernels, stability, umap
from benchmarks.figures.independence import independence60k, level, power
from benchmarks.figures.ingested import (
    ingest_csv,
    ingest_grown,
    ingest_parquet,
    ingest_workers,
    newcomer,
)
from benchmarks.figures.large import mnist60k, polynomial60k, verified60k
from benchmarks.figures.nightly import bad_nights, sound_nights
from benchmarks.figures.optima import optima
from benchmarks.figures.paradigms import clusters, clusters10k, clusters60k, graphs, guided
from benchmarks.figures.predicted import predicted60k, predicted_scale, quick
from benchmarks.figures.readable import band, censored
from benchmarks.figures.real_tables import real_tables
from benchmarks.figures.recovery import recovery
from benchmarks.figures.remaining import time_left
from benchmarks.figures.scale import scale
from benchmarks.figures.soaked import soak
from benchmarks.figures.sparse_texts import sparse_text
from benchmarks.figures.tenfold import cancer, face, mnist, small, wine
from benchmarks.figures.through_fits import level_fitted, power_fitted
from benchmarks.figures.unfolded import unfolded, unfolded60k
from benchmarks.figures.unfolded_claims import (
    unfolded_bounds,
    unfolded_claims,
    unfolded_rank,
    unfolded_sparse,
)
from benchmarks.figures.watched import overhead, startup
from benchmarks.gpu import gpu
from benchmarks.measure import Figure

__all__ = ["FIGURES", "UNASKED"]

FIGURES: dict[str, Callable[..., Figure]] = {
    figure.__name__: figure
    for figure in (
        wine,
        cancer,
        face,
        small,
        tiles,
        tiles60k,
        mnist,
        dense9000,
        engines,
        mnist60k,
        polynomial60k,
        verified60k,
        slope,
        solver_slopes,
        costs,
        crossover,
        workers,
        clusters,
        clusters10k,
        clusters60k,
        graphs,
        guided,
        alternatives,
        views,
        band,
        censored,
        quick,
        predicted60k,
        predicted_scale,
        recovery,
        correlated,
        weak,
        wide,
        dimensions,
        certainty,
        certainty_elsewhere,
        certainty_unseen,
        accuracy,
        kernels,
        real_tables,
        stability,
        umap,
        optima,
        certified,
        certified_predictions,
        overhead,
        startup,
        time_left,
        ingest_csv,
        ingest_parquet,
        ingest_workers,
        ingest_grown,
        sound_nights,
        bad_nights,
        newcomer,
        level,
        independence60k,
        power,
        level_given,
        power_given,
        given60k,
        level_fitted,
        power_fitted,
        sparse_text,
        supports,
        sparse,
        avoid,
        given,
        unfolded,
        unfolded60k,
        unfolded_bounds,
        unfolded_claims,
        unfolded_rank,
        unfolded_sparse,
        gpu,
        scale,
        soak,
    )
}
# Measured only if they are named: they take many minutes, space on disk, or other packages.
UNASKED = frozenset(
    {
        "scale",
        "soak",
        "gpu",
        "predicted_scale",
        "optima",
        "power",
        "umap",
        "dimensions",
        "level_given",
        "level_fitted",
    }
)
