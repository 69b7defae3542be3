"""Every figure that needs no minutes and no other machine runs, with few draws and few rows."""

from importlib import import_module

import pytest

from benchmarks.registry import all_figures

# What makes a figure short: values of names of its module, or how many of their entries.
SHORT = {
    "avoid": {"_SPLITS": 1, "_DATA": 1},
    "given": {"_DRAWS": 1, "_SIMULATIONS": 2},
    "certainty": {"_DRAWS": 1, "_ROWS": 200, "DESIGNS": 1},
    "certainty_elsewhere": {"_FEW_DRAWS": 1, "DESIGNS": 1, "_ELSEWHERE": 1},
    "certified": {"_FITS": 4, "_ALIKE": 4},
    "certified_predictions": {"_FITS": 4, "_ALIKE": 4},
    "level_given": {"_DRAWS": 2, "_RIVAL_DRAWS": 2, "_LARGER_DRAWS": 1, "NULLS": 2},
    "power_given": {"_EFFECT_DRAWS": 2, "EFFECTS": 2},
    "given60k": {"_MANY": 1500, "NULLS": 2},
    "correlated": {"_DRAWS": 1, "_SIZES": (100, 200), "_CORRELATED": 1},
    "wide": {"_WIDE_DRAWS": 1, "_WIDE": 1},
    "weak": {"_WEAK_DRAWS": 2, "_WEAK": 1},
    "dimensions": {"_DRAWS": 1, "_OTHER_DRAWS": 1, "_ROWS": 100, "_OTHERS": 1, "_REAL": 1},
    "supports": {"_DRAWS": 1, "_ROWS": 100, "DESIGNS": 1},
    "discoveries": {"_DESIGNS": 1, "_DRAWS": 1},
    "sparse": {"_SPLITS": 1, "_SIZES": (10,)},
    "accuracy": {"_CASES": 1, "_REPEATS": 1},
    "kernels": {"_CASES": 1, "_REPEATS": 1},
    "stability": {"_HALVED": 1, "_HALVINGS": 1},
    "level": {"_NULLS": 2, "_PERMUTATIONS": 9},
    "bad_nights": {"_BAD_NIGHTS": 1, "_TABLES": 1, "_BAD": 1},
    "sound_nights": {"_NIGHTS": 1, "_TABLES": 1, "_WAYS": 1},
    "gaps": {"_CHOSEN": 1, "_DRAWS": 1, "_SPLITS": 1},
    "real_tables": {"_FEATURES": (1,), "_TABLES": 1},
    "ingest_parquet": {"_PARQUET_ROWS": 2000, "_REPEATS": 1},
    "many_rows": {"_SIZES": {600: (2.0, 1)}, "_REGRESSIONS": 1},
    "small": {"_FITS": 1, "_SMALL": 1},
    "quick": {"_SMALL": 1, "_REPEATS": 1},
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHORT)
def test_a_figure_runs(name, monkeypatch):
    figure = all_figures()[name]
    module = import_module(figure.__module__)
    for constant, short in SHORT[name].items():
        value, known = short, getattr(module, constant)
        if isinstance(short, int) and not isinstance(known, int):
            entries = list(known.items() if isinstance(known, dict) else known)
            value = type(known)(entries[:short])
        monkeypatch.setattr(module, constant, value)
    # Other processes would measure by the usual constants.
    serial = lambda measure, cells, _=None: (measure(*cell) for cell in cells)  # noqa: E731
    monkeypatch.setattr(module, "in_processes", serial, raising=False)
    found = figure()
    assert isinstance(found["must"], str)
    assert isinstance(bool(found["met"]), bool)
    assert found.get("table") or any(isinstance(value, float) for value in found.values())
