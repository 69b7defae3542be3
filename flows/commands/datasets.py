"""List the data sets."""

from __future__ import annotations

from flows.console import Output

EXAMPLE = "Example: ism-dask datasets"
HIDDEN = False


def run(*, output: Output) -> None:
    """List the data sets that there are, and which of them are stored."""
    from flows.work.catalogue import catalogue  # noqa: PLC0415

    entries = catalogue()
    columns = ("name", "split", "labels (classes)", "title", "rows", "columns", "stored")
    output.table(columns, [entry.cells() for entry in entries], left=4)
    output.finish({"command": "datasets", "datasets": [entry.to_json() for entry in entries]})
