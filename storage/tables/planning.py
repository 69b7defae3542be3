"""Decide how a table is to be stored: which columns are features, and how each is encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from functools import partial
from itertools import accumulate, tee
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ism_dask.gamma.targets import MAX_WHOLE_CLASSES
from storage.errors import TableError, did_you_mean
from storage.tables.arrow_files import copied_pieces
from storage.tables.encoding import empty_scan, kind_of, scan_part
from storage.tables.files import COLUMNAR, SourceFile
from storage.tables.schema import (
    AUTO,
    CATEGORY,
    CLASSES,
    DATE,
    DROP,
    NUMBER,
    NUMBERS,
    REFUSE,
    WEIGHTS,
    Column,
    TableOptions,
    TableScan,
    TableSchema,
    check_encoded_names,
    is_number,
)
from storage.tables.sources import OnRows, Part, Table, work_on_rows


class Job(NamedTuple):
    """A part of a table to be stored, the number of its first row among all, and of its rows."""

    part: Part
    start: int
    rows: int


@dataclass(frozen=True, eq=False)
class TablePlan:
    """A table that was scanned, and how it is to be stored."""

    table: Table
    schema: TableSchema
    files: tuple[SourceFile, ...]  # with the versions that were scanned
    jobs: list[Job]  # the parts with the rows to store, one after the other


def plan_table(
    table: Table,
    options: TableOptions,
    on_rows: OnRows,
    *,
    folder: Path | None = None,
    executor: Executor | None = None,
) -> TablePlan:
    """Scan a table, and decide how to store it; nothing is written.

    Parameters
    ----------
    on_rows : callable
        Called with the number of rows scanned so far.
    folder : Path, optional
        Where a copy of the rows may lie while they are ingested.
    executor : Executor, optional
        Where the pieces of the table are scanned. Default: in threads of this process.
    """
    files = table.versions()
    features = _feature_names(table, options)
    kinds, unread = _kinds(table, [*features, *options.apart], dates=options.dates)
    parts = table.parts if folder is None else copied_pieces(table, kinds, folder)
    parts, pieces = (parts, parts) if isinstance(parts, tuple) else tee(parts)
    work = partial(scan_part, kinds=kinds, options=options)
    scan, rows = empty_scan(kinds, options), []
    for each in work_on_rows(work, parts, executor, on_rows):
        scan.add(each)
        rows.append(each.rows_stored)
    starts = accumulate(rows, initial=0)
    jobs = [Job(*each) for each in zip(pieces, starts, rows, strict=False)]
    return TablePlan(table, _decided(table, scan, options, unread), files, jobs)


def _feature_names(table: Table, options: TableOptions) -> list[str]:
    """Return the columns that are features; raise a TableError that lists unknown names."""
    names = table.schema.names
    weights = () if options.weights is None else (options.weights,)
    roles = {"label": options.label, "drop": options.drop, "keep": options.keep, "weights": weights}
    roles["columns"] = options.columns
    unknown = [
        f"`{role}` has {name!r}; {did_you_mean(name, names)}".rstrip("; ")
        for role, given in roles.items()
        for name in given
        if name not in names and not (role == "columns" and matching(names, name))
    ]
    if unknown:
        columns = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise TableError(
            f"{'; '.join(unknown)}; {table.description} has the columns {columns}", *roles
        )
    # A name such as "weight [kg]" is a pattern, too, but not of itself.
    wanted = {name for each in options.columns or ("*",) for name in (each, *matching(names, each))}
    wanted.difference_update(options.apart, options.drop, options.keep)
    chosen = [name for name in names if name in wanted]
    if not chosen:
        raise TableError(f"{table.description} has no column left that could be a feature")
    return chosen


def _kinds(table: Table, names: list[str], *, dates: bool) -> tuple[dict[str, str], list[str]]:
    """Return the kind of each column that can be read, and a clause about the others, if any."""
    kinds, problems = {}, list[str]()
    for name in dict.fromkeys(names):
        try:
            kinds[name] = kind_of(table.schema.field(name), dates=dates)
        except TableError as error:
            problems.append(str(error))
    if problems:
        advice = "drop such columns, or convert them to numbers first"
        if any("holds dates" in problem for problem in problems):
            advice = f"read dates as days with --dates (dates=True), {advice}"
        problems = [f"{'; '.join(problems)}: {advice}"]
    return kinds, problems


def _decided(
    table: Table, scan: TableScan, options: TableOptions, unread: Sequence[str]
) -> TableSchema:
    """Return the schema that follows from a scan.

    Raise one TableError that lists all that cannot be stored, columns that are `unread` first.
    """
    if not scan.rows:
        raise TableError(f"{table.description} has no rows")
    if not scan.rows_stored:
        raise TableError(
            f"each row of {table.description} lacks a value: `missing` drop keeps none", "missing"
        )
    scanned = [each for each in scan.columns.values() if each.name not in options.apart]
    # In a text file, only numbers that are not plain make a column of numbers a category.
    is_text = table.files is not None and table.files.suffix not in COLUMNAR
    judged = scan.columns.values() if options.target == AUTO else scanned
    mixed = {each.name: words for each in judged if (words := _mixed(each, is_text=is_text))}
    unfit = _unfit_columns(scanned, scan.rows, options, mixed)
    problems, labels = [*unread, *unfit, *_gaps(scan, options)], list[Column]()
    for column in (scan.columns[name] for name in options.apart if name in scan.columns):
        try:
            is_weight = column.name == options.weights
            labels.append(_weights(column) if is_weight else _label(column, options))
        except TableError as error:
            problems.append(str(error))
    if problems:
        raise TableError("; ".join(problems), "missing", "target", "decimal")
    used = {*scan.columns, *options.keep}
    types = [table.schema.field(each.name).type for each in scanned]
    schema = TableSchema(
        options=options,
        features=tuple(scanned),
        labels=tuple(labels),
        dropped=tuple(name for name in table.schema.names if name not in used),
        rows=scan.rows,
        rows_left_out=scan.rows - scan.rows_stored,
        dtype="float32" if all(map(_fits_float32, types)) else "float64",
    )
    check_encoded_names(schema)
    return schema


def _unfit_columns(
    columns: Sequence[Column], rows: int, options: TableOptions, mixed: Mapping[str, str]
) -> list[str]:
    """Return what is wrong with features, and before it the clauses of `mixed` by column."""
    problems = [*mixed.values()]
    for column in columns:
        has_many = column.overflows or len(column.counts) > options.max_levels
        if has_many and column.kind == CATEGORY and column.name not in mixed:
            many = f"over {column.most:,}" if column.overflows else f"{len(column.counts):,}"
            problems.append(
                f"the column {column.name!r} has {many} different texts, such as "
                f"{next(iter(column.counts))[:40]!r}; expected at most {options.max_levels}"
            )
        if column.infinite:
            problems.append(
                f"the column {column.name!r} is infinite in {column.infinite:,} of {rows:,} rows"
            )
        if column.missing == rows:
            problems.append(f"the column {column.name!r} has no values")
    numbers = "write numbers as 1234.5, or 1234,5 with `decimal` ,; a label may be `target` classes"
    hint = f" ({numbers}; leave a cell without a number empty)" if mixed else ""
    advice = f"correct or drop these columns{hint}"
    return [*problems[:-1], f"{problems[-1]}: {advice}"] if problems else []


def _mixed(column: Column, *, is_text: bool) -> str:
    """Return a clause about a category of which half or more are numbers; empty for another one."""
    if column.kind != CATEGORY:
        return ""
    plain = str.isdigit if is_text else is_number
    texts = [value for value in column.counts if not is_number(value, written=True)]
    odd = texts or [value for value in column.counts if not plain(value)]
    if not odd or 2 * len(texts) > len(column.counts):
        return ""
    return f"the column {column.name!r} has numbers, and texts such as {odd[0][:40]!r}"


def _gaps(scan: TableScan, options: TableOptions) -> list[str]:
    """Return a clause that counts missing values, none if the options accept them."""
    refused = {REFUSE: tuple(scan.columns), DROP: ()}.get(options.missing, options.apart)
    gaps = {each.name: each.missing for each in scan.columns.values() if each.name in refused}
    counts = ", ".join(f"{name} ({count:,})" for name, count in gaps.items() if count)
    if not counts:
        return []
    advice = "drop, mean or indicator" if options.missing == REFUSE else "drop"
    missing = f"values are missing in some of {scan.rows:,} rows: {counts}"
    return [f"{missing}; accept that with `missing` {advice}"]


def _fits_float32(kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return bool(kind.bit_width <= 16)
    many_digits = (pa.types.is_float64, pa.types.is_decimal, pa.types.is_temporal)
    return not any(has_many(kind) for has_many in many_digits)


def _weights(column: Column) -> Column:
    """Return the column with the weights of rows; raise a TableError if it has other values."""
    if column.kind in (CATEGORY, DATE):
        raise TableError(f"the weights {column.name!r} are no numbers; expected such from 0 up")
    if column.infinite:
        raise TableError(f"the weights {column.name!r} are infinite in {column.infinite:,} rows")
    if column.kind == NUMBER and (column.low < 0 or column.high == 0):
        raise TableError(
            f"the weights {column.name!r} go from {column.low:g} to {column.high:g}; expected "
            "numbers from 0 up, some of them above 0"
        )
    return replace(column, role=WEIGHTS)


def _label(column: Column, options: TableOptions) -> Column:
    """Return a label with its kind; raise a TableError if that is unclear or cannot be."""
    if column.infinite:
        raise TableError(f"the label {column.name!r} is infinite in {column.infinite:,} rows")
    numeric, is_first = column.kind == NUMBER, column.name == options.label[0]
    target = options.target if is_first else AUTO  # another may be texts, or an age to avoid
    if numeric and target == CLASSES and not column.whole:
        raise TableError(
            f"the label {column.name!r} has decimals, or numbers beyond 2^53; `target` classes "
            "needs whole numbers or texts"
        )
    many = column.overflows or len(column.counts) > MAX_WHOLE_CLASSES
    unclear = numeric and target == AUTO and column.whole and many
    if unclear and is_first:
        raise TableError(
            f"the label {column.name!r} has more than {MAX_WHOLE_CLASSES} different whole "
            "numbers, which may be classes or numbers; give `target` classes or numbers"
        )
    has_numbers = column.kind == DATE or (numeric and target == AUTO and not column.whole)
    if target == NUMBERS or has_numbers or unclear:
        if column.kind == CATEGORY:
            raise TableError(
                f"the label {column.name!r} holds texts, and its target needs numbers; name "
                "another column, or give `target` classes"
            )
        return replace(column, role=NUMBERS)
    if column.overflows:
        raise TableError(
            f"the label {column.name!r} has over {column.most:,} classes; expected fewer"
        )
    if len(column.levels) < 2:
        raise TableError(
            f"the label {column.name!r} has {len(column.levels)} class; expected 2 or more"
        )
    return replace(column, role=CLASSES)
