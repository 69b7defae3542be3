"""Ingest tables of any origin: scan their columns, decide an encoding, and store the rows."""

from __future__ import annotations

from typing import Any

from storage.dataset import Dataset

__all__ = ["ingest_table"]


def ingest_table(source: Any, name: str | None = None, **options: Any) -> Dataset:
    """Store a table as a data set; see `storage.tables.ingestion.ingest_table`."""
    # It imports pyarrow, which is an extra and takes a while.
    from storage.tables.ingestion import ingest_table as ingest  # noqa: PLC0415

    return ingest(source, name, **options)
