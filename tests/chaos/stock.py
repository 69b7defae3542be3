"""A home with one of everything that is stored, small, and ways to read all of it; tables."""

import math
import os
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from flows.errors import FlowError
from flows.services.leases import Lease, find_lease
from ism_dask.records.checkpoint import Checkpoint, OuterState
from ism_dask.records.iteration import Record, Round, State
from storage import (
    Checkpoints,
    DatasetInfo,
    Model,
    PartialResults,
    Sample,
    StorageError,
    dataset_path,
    load_model,
    open_dataset,
    open_run,
    save_model,
    save_results,
    write_dataset,
)

REQUEST = {"dataset": "small", "tol": 1e-5}
PIECE = "fold-1"


def store_small(seed: int = 0) -> Path:
    """Store a data set of 50 x 3 numbers in three chunks; return its path."""
    path, X = dataset_path("small"), np.random.default_rng(seed).normal(size=(50, 3))
    info = DatasetInfo("small", class_names={"kind": ("a", "b")}, default_label="kind")
    write_dataset(path, info, [X], {"kind": (X[:, 0] > 0).astype(int)}, chunk_rows=20)
    return path


def random_table(rows: int, seed: int) -> pd.DataFrame:
    """Return four columns of numbers, one of levels, and two classes y."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 4)), columns=list("abcd"))
    return frame.assign(level=rng.choice(["n", "s"], rows), y=np.where(frame["a"] > 0, "yes", "no"))


def gappy_table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return the same with gaps in a and in the levels."""
    frame = random_table(rows, seed)
    frame.loc[::7, "a"] = np.nan
    frame.loc[::11, "level"] = None
    return frame


def write_table(frame: pd.DataFrame, path: Path) -> Path:
    """Write a frame in the format of a suffix, and the folder; return the path."""
    # Without compression each byte counts.
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=40, compression=None)
    elif path.suffix == ".feather":
        frame.to_feather(path, compression="uncompressed")
    else:
        frame.to_csv(path, index=False)
    return path


def checkpoint(seed: int = 0) -> Checkpoint:
    rng = np.random.default_rng(seed)
    record = Record(1, rng.normal(), (1.5, -0.0), math.inf, 0.1, 0.2, ascent=True, settled=True)
    W, best = rng.normal(size=(2, 5, 2))
    steps = ((W, best),)
    state = State(W, rng.normal(size=2), best, -math.inf, math.nan, (record,), rng.normal(), steps)
    turn = Round(1, 2.0, 3.0, (1.0, 0.5), 0.1, 0.2, 7, 0.4)
    standing = OuterState((turn,), State.from_weights(W, np.ones(2)))
    return Checkpoint(standing, (state, None, state))


def bits(value: object) -> object:
    """Return what tells values apart, to the last bit and the type."""
    if isinstance(value, dict):
        return {name: bits(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [bits(each) for each in value]
    if is_dataclass(value):
        return type(value), bits(vars(value))
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return type(value), repr(value)


def keep_model(seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    model = Model(
        components=rng.normal(size=(2, 3)),
        mean=rng.normal(size=3),
        scale=np.ones(3),
        eigenvalues=np.array([2.0, 1.0]),
        labels=np.arange(6) % 2,
        sample=Sample(rng.normal(size=(6, 2)).astype(np.float32), np.arange(6) % 2),
        metrics={"objective": 1.0},
    )
    save_model("fitted", model)


def keep_results(accuracy: float = 0.9) -> None:
    save_results("judged", "crossval", config={}, metrics={"accuracy": accuracy}, versions={})


def lease() -> Lease:
    """Return the lease of a process that is gone."""
    known = {"settings": {"dataset": "small"}, "pid": 2**22 + 1, "created": 1.0, "taken": 1e9}
    return Lease(run="under-way", kind="fit", **known)


def stock() -> Path:
    """Fill the home with a data set, a model, results, and a run that was cut off; return it."""
    store_small()
    keep_model()
    keep_results()
    for seed in range(3):
        Checkpoints.of_run("under-way").save(REQUEST, checkpoint(seed))
    PartialResults.of_run("under-way").save(PIECE, REQUEST, {"accuracy": 0.5})
    lease().write()
    return Path(os.environ["ISM_DASK_HOME"])


def read_under_way() -> None:
    checkpoints = Checkpoints.of_run("under-way")
    for number in checkpoints.numbers:
        checkpoints.read(number)
    PartialResults.of_run("under-way").find(PIECE, REQUEST)
    find_lease("under-way")


# How each thing of the home is read, by its name.
READS: dict[str, Callable[[], object]] = {
    "small": lambda: open_dataset("small").X.read(0, 50),
    "fitted": lambda: load_model("fitted"),
    "judged": lambda: open_run("judged"),
    "under-way": read_under_way,
}


def said_by(use: Callable[[], object]) -> str:
    """Return the words of the error of ours with which a call ends; empty if it ends well."""
    try:
        use()
    except (StorageError, FlowError) as error:
        return str(error)
    return ""


def files_below(folder: Path) -> dict[Path, bytes]:
    """Return the content of all files but locks."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path: path.read_bytes() for path in files if path.name not in (".lock", ".leases")}
