"""Fit rows on disk, which need not fit into memory, on a Dask cluster of two workers.

The rows have twenty columns. Their three classes are rings in a plane, which no single column
shows. The script writes the rows to a folder in chunks and fits two new features, with a progress
bar, and compares the fitted plane with the true one. Then it writes the new features of all rows,
without ever holding all old ones in memory.

    python examples/larger_than_memory.py
    python examples/larger_than_memory.py --rows 50000000      # 4 GB on disk
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import dask.array as da
import numpy as np
import scipy.linalg
from distributed import Client, LocalCluster

from ism_dask import PredictiveIKDR, SupervisedIKDR, progress_bar

COLUMNS, RADII = 20, (1.0, 1.8)
# Largest number of rows of a chunk, which then takes 2 MB. A worker holds a few chunks at a time.
CHUNK = 25_000


def main() -> None:
    """Write the rows, fit them, print the result, and transform all rows."""
    rows = parsed().rows
    with TemporaryDirectory() as folder, two_workers():
        plane = write_rows(rows, Path(folder))
        X = da.from_zarr(folder, "X")
        y = da.from_zarr(folder, "y").compute()  # labels are small: one number per row
        print(f"{len(X):,} rows of {COLUMNS} in {X.npartitions} chunks, {X.nbytes / 1e6:,.0f} MB")
        with progress_bar("rings"):
            fitted = PredictiveIKDR(2).fit(X, y)
        tell(fitted, plane)
        new = fitted.transform(X)  # nothing is computed yet
        new.to_zarr(folder, component="new")
        kept = da.from_zarr(folder, "new")
        print(f"new features on disk: {kept.shape[0]:,} x {kept.shape[1]} {kept.dtype}")


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    return parser.parse_args()


@contextmanager
def two_workers() -> Iterator[None]:
    """Run the computations in the block on a cluster of two processes on this machine."""
    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        memory_limit="1GB",
        dashboard_address="127.0.0.1:0",  # a free port, open to this machine only
    )
    with cluster, Client(cluster):
        print(f"dashboard: {cluster.dashboard_link}")
        yield


def write_rows(rows: int, folder: Path) -> np.ndarray:
    """Write the rows and their classes by chunks; return a basis (20, 2) of the rings' plane."""
    plane, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(COLUMNS, 2)))
    random = da.random.default_rng(0)
    chunks = (min(CHUNK, -(-rows // 4)), COLUMNS)
    X = random.normal(size=(rows, COLUMNS), chunks=chunks).astype(np.float32)
    radius = da.linalg.norm(X @ plane, axis=1)
    X.to_zarr(str(folder), component="X")
    da.digitize(radius, RADII).to_zarr(str(folder), component="y")
    return plane


def tell(fitted: SupervisedIKDR, plane: np.ndarray) -> None:
    """Print what the features explain, and the angle between the fitted and the true plane."""
    print(f"the new features explain {fitted.objective_:.0%} of y, residual {fitted.residual_:.1e}")
    # In the units of the rows. A basis of a plane is not unique, so compare planes by angles.
    found = (fitted.components_ / fitted.scale_).T
    sine = np.sin(scipy.linalg.subspace_angles(found, plane).max())
    print(f"sine of the largest angle between the plane found and the true one: {sine:.4f}")


if __name__ == "__main__":
    main()
