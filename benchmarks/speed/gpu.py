"""Measure fits on a GPU, and their agreement with the processor.

`python -m benchmarks gpu` writes it beside the other figures. `python -m benchmarks.speed.gpu FILE`
needs nothing but this package and PyTorch; it prints its tables, and writes them to FILE as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.registry import long_figure
from benchmarks.studies.designs import DESIGNS, Array, Design
from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines.blocks import dealt_rows
from ism_dask.engines.device_blocks import BlocksOnDevice, DeviceRows, MemoryPlan, block_bytes
from ism_dask.kernels import Gaussian
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.rows.devices import Device
from storage import DatasetInfo, open_dataset, write_dataset

# The designs that both fit, their rows, and the sine of the angle between the two W that may be.
_COMPARED, _ROWS, _AGREE = 10, 10_000, 1e-5
# Rows and columns of the pictures, new features, and the rows of the large fit.
_MANY, _COLUMNS, _CLASSES, _Q, _MILLION = 60_000, 784, 10, 5, 1_000_000
# The seconds from which on no other measurement begins.
_LAST_START = 300.0
# The fit to 60,000 rows is to take this long on a card.
_FIT_SECONDS = 0.5
_BATCHES = (1, 10, 50, 150)
_GEMM = 4096


@long_figure
def gpu() -> dict[str, Any]:
    """Seconds of passes and fits on a GPU, and the sine between its W and the processor's."""
    began, name, note = time.perf_counter(), *_place()
    if not name:
        return {"must": "PyTorch", "met": False, "notes": [note]}
    tables: dict[str, list[dict[str, Any]]] = {}
    steps: dict[str, Callable[[str], list[dict[str, Any]]]] = {
        "Agreement": _agreement,
        "A pass over 60,000 x 784": _passes,
        "Fits": _fits,
    }
    for title, step in steps.items():
        if time.perf_counter() - began < _LAST_START:
            tables[title] = step(name)
    sines = [line["sine"] for line in tables["Agreement"]]
    fits = {line["rows"]: line["seconds"] for line in tables.get("Fits", [])}
    met = max(sines) <= _AGREE and fits.get("NumPy, 60,000", np.inf) <= _FIT_SECONDS
    return {
        "device": note,
        "largest_sine": max(sines),
        "more_tables": tables,
        "must": f"sine {_AGREE:g} between both, {_FIT_SECONDS} s for 60,000 rows on a card",
        "met": bool(met),
        "notes": [f"The device is {note}."],
    }


def _place() -> tuple[str, str]:
    """Return the name of a device of PyTorch, and what it is; no name without PyTorch."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return "", "PyTorch is not installed: nothing was measured."
    if torch.cuda.is_available():
        return "cuda:0", f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}"
    return "cpu:0", f"no card, but the processor by PyTorch {torch.__version__}"


def _fitted(X: Any, y: Array, q: int, name: str | None) -> tuple[PredictiveIKDR, float]:
    """Return the default fit, on a device or here, and its seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model = PredictiveIKDR(q, device=name or "auto").fit(X, y)
    return model, time.perf_counter() - began


def _agreement(name: str) -> list[dict[str, Any]]:
    return [_compared(design, name) for design in DESIGNS[:_COMPARED]]


def _compared(design: Design, name: str) -> dict[str, Any]:
    draw = design.draw(_ROWS, np.random.default_rng(0))
    here, seconds = _fitted(draw.X, draw.y, design.q, None)
    there, seconds_there = _fitted(draw.X, draw.y, design.q, name)
    return {
        "design": design.name,
        "sine": subspace_sine(here.components_.T, there.components_.T),
        "J": here.objective_,
        "change_of_J": there.objective_ - here.objective_,
        "steps": f"{here.n_iter_}, {there.n_iter_}",
        "seconds": seconds,
        "seconds_on_device": seconds_there,
    }


def pictures(n: int, d: int = _COLUMNS) -> tuple[Array, Array]:
    """Draw bytes X (n, d) of twelve sources and noise, and classes y (n,) of two clusters each."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(12, d)).astype(np.float32)
    centres = 1.2 * rng.normal(size=(_CLASSES, 2, 12)).astype(np.float32)
    X, y = np.empty((n, d), np.uint8), rng.integers(_CLASSES, size=n)
    for start in range(0, n, _ROWS):
        rows = slice(start, min(start + _ROWS, n))
        of_class = centres[y[rows], rng.integers(2, size=rows.stop - start)]
        sources = of_class + 0.7 * rng.standard_normal(of_class.shape, np.float32)
        noise = rng.standard_normal((len(sources), d), np.float32)
        X[rows] = np.clip(128 + 20 * (sources @ loadings + 1.5 * noise), 0, 255)
    return X, y


def _passes(name: str) -> list[dict[str, Any]]:
    """Return the milliseconds of J and its slope by precision and batch."""
    X, y = pictures(_MANY)
    rows = Block(
        ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), np.eye(_CLASSES)[y] - 0.1
    )
    W = np.linalg.qr(np.random.default_rng(1).normal(size=(_COLUMNS, _Q)))[0]
    regression, device = RidgeRegression(Gaussian(2.0), 1e-3), Device.named(name)
    parts = dealt_rows(y.astype(float), 0)
    lines = []
    for each in (regression.in_single, regression):
        rate = _multiplications(device, each.dtype.name)
        for batch in _BATCHES:
            blocks = BlocksOnDevice(DeviceRows.from_block(device, rows), parts)
            blocks._plan = MemoryPlan(True, batch * block_bytes(len(parts[0]), _COLUMNS))
            seconds = _median(lambda b=blocks, r=each: b.explained(r, W))
            needed = _MANY * (len(parts[0]) ** 2 / 3 + 4 * _COLUMNS * _Q)
            lines.append(
                {
                    "precision": each.dtype.name,
                    "blocks_of_a_batch": batch,
                    "ms": 1e3 * seconds,
                    "share_of_arithmetic": needed / seconds / rate,
                }
            )
    return lines


def _multiplications(device: Device, dtype: str) -> float:
    """Return the operations a second of a product of large matrices."""
    matrix = device.xp.ones((_GEMM, _GEMM), dtype=getattr(device.xp, dtype), device=device.device)
    return 2 * _GEMM**3 / _median(lambda: float((matrix @ matrix)[0, 0]))


def _median(call: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median seconds of calls after a first one."""
    call()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def _fits(name: str) -> list[dict[str, Any]]:
    X, y = pictures(_MANY)
    here, seconds = _fitted(X, y, _Q, None)
    lines = [_line("processor, 60,000", here, seconds, here)]
    for _ in range(2):
        there, seconds = _fitted(X, y, _Q, name)
        lines.append(_line("NumPy, 60,000", there, seconds, here))
    if not name.startswith("cuda"):
        return lines
    X, y = pictures(_MILLION)
    lines += [_line("NumPy, 1,000,000", *_fitted(X, y, _Q, name), None)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pictures"
        write_dataset(path, DatasetInfo("pictures", default_label="y"), [X], {"y": y})
        del X
        lines += [_line("Zarr, 1,000,000", *_fitted(open_dataset(path).X, y, _Q, name), None)]
    return lines


def _line(
    rows: str, model: SupervisedIKDR, seconds: float, other: SupervisedIKDR | None
) -> dict[str, Any]:
    return {
        "rows": rows,
        "seconds": seconds,
        "steps": model.n_iter_,
        "J": model.objective_,
        "sine": 0.0 if other is None else subspace_sine(model.components_.T, other.components_.T),
    }


def main(arguments: list[str]) -> None:
    """Print the figure, and write it to a file if one is named."""
    figure = gpu()
    print(*figure["notes"], f"{os.cpu_count()} cores beside it.", sep="\n")
    for title, lines in figure.get("more_tables", {}).items():
        print(f"\n{title}")
        for line in lines:
            words = (
                f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in line.items()
            )
            print("  " + "; ".join(words))
    print(f"\nTo be reached: {figure['must']}: {'reached' if figure['met'] else 'not reached'}")
    for file in arguments:
        Path(file).write_text(json.dumps(figure, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
