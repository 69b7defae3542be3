"""Tables on a real S3 server: read, watched for changes, and without a trace of the credentials."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import boto3
import fsspec
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from storage import TableError, ingest_table
from storage.tables.formats import open_table


def _frame(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=list("abc"))
    return frame.assign(
        level=rng.choice(["n", "s"], rows), churned=np.where(frame["a"] > 0, "yes", "no")
    )


def _same_as_local(address: str, local: Path) -> None:
    data = ingest_table(address, "far", label="churned")
    expected = ingest_table(local, "near", label="churned")
    assert data.feature_names == expected.feature_names
    assert data.data_hash == expected.data_hash
    assert_array_equal(data.X.read(0, len(data.X)), expected.X.read(0, len(expected.X)))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz"])
def test_a_folder_of_parts_is_the_same_as_on_disk(lake, tmp_path, suffix):
    (tmp_path / "parts").mkdir()
    for part in range(3):
        frame, name = _frame(200, part), f"parts/{part}.{suffix}"
        write = frame.to_parquet if suffix == "parquet" else frame.to_csv
        write(tmp_path / name, index=False)
        boto3.client("s3").upload_file(str(tmp_path / name), lake.removeprefix("s3://"), name)
    _same_as_local(f"{lake}/parts", tmp_path / "parts")
    _same_as_local(f"{lake}/parts/*.{suffix}", tmp_path / "parts")
    # Credentials are read from the environment and stored nowhere.
    stored = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert stored
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    assert not any(secret in path.read_bytes() for path in stored)


def test_a_change_is_seen_though_listings_are_cached(lake):
    address = f"{lake}/sales.parquet"
    _frame(200).to_parquet(address)
    table = open_table(address)
    before = table.versions()
    assert before == open_table(address).versions()
    assert before[0].path == address
    assert before[0].version
    _frame(200, seed=1).to_parquet(address, storage_options={"use_listings_cache": False})
    assert table.versions() != before
    assert ingest_table(address, "sales", label="churned").info.table["files"] == [
        asdict(open_table(address).versions()[0])
    ]


def test_what_is_not_there_is_named(lake, monkeypatch):
    with pytest.raises(TableError, match=r"there is no file or folder .*/none\.csv"):
        ingest_table(f"{lake}/none.csv", "none")
    nobody = {
        "endpoint_url": "http://127.0.0.1:9",
        "config_kwargs": {"retries": {"mode": "standard"}},
    }
    monkeypatch.setitem(fsspec.config.conf, "s3", nobody)
    with pytest.raises(TableError, match="cannot read"):
        ingest_table(f"{lake}/none.csv", "none")
