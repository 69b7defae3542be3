"""The commented run file that `ism-dask init` writes, and the JSON schema of run files."""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any, Union, get_args, get_origin, get_type_hints

from flows.settings.kernels import SUM, kernel_names
from flows.settings.run_file import (
    FLOWS,
    DataTable,
    OutputTables,
    RefreshTable,
    TransformTable,
    setting_names,
)
from storage.tables.files import table_name

# What stands in a new file where the user has not said which table and which column.
_SOURCE, _LABEL, _OUT = "table.csv", "label", "new-features.csv"
# How a fit is cross-validated, too.
_CROSSVAL_TOO = (
    "",
    "# Cross-validate the fit, too: a run RUN-crossval, with the settings of [fit] and these.",
    "# [crossval]",
    "# folds = 10",
)
_WIDTH = 88
_TYPES = {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean"}


def commented_run_file(flow: str, source: str | None = None, label: str | None = None) -> str:
    """Return a run file in which every setting stands with its meaning and its default.

    Settings that are at their default are comments.
    """
    given = table_name(source or _SOURCE)  # that of the folder of a glob, if there is one
    name = re.sub(r"[^\w.-]+", "-", given).strip("-.") or "table"
    data = {"source": source or _SOURCE, "label": label or _LABEL}
    if not given:
        data["name"] = name
    lines = [
        "# A run of ism-dask: `ism-dask run FILE` computes it, `--dry-run` shows what it would do.",
        "# Lines that begin with # are comments; remove the # to change a default.",
        "",
        *_entries(OutputTables, ["run", "report"], {"run": name, "report": f"{name}.html"}),
        "[data]",
        *_entries(DataTable, _names(DataTable), data),
        f"[{flow}]",
        *_entries(FLOWS[flow], setting_names(flow), {}),
        "# Limits of `ism-dask refresh FILE`, beyond which it does not publish the new W.",
        "[refresh]",
        *_entries(RefreshTable, _names(RefreshTable), {}),
        "# Rows to project after the fit; repeat the table for more files.",
        "# [[transform]]",
        f'# source = "{data["source"]}"',
        f'# out = "{_OUT}"',
        *(_CROSSVAL_TOO if flow == "fit" else ()),
    ]
    return "\n".join(lines) + "\n"


def run_file_schema() -> dict[str, Any]:
    """Return the JSON schema of run files, for editors that check TOML by one."""
    tables = {
        "data": _object(DataTable, _names(DataTable)),
        "transform": {"type": "array", "items": _object(TransformTable, _names(TransformTable))},
        "refresh": _object(RefreshTable, _names(RefreshTable)),
        **{flow: _object(kind, setting_names(flow)) for flow, kind in FLOWS.items()},
    }
    for flow in FLOWS:
        if "terms" in tables[flow]["properties"]:
            tables[flow]["properties"]["terms"]["items"] = {"anyOf": [{"type": "string"}, _term()]}
    top = _object(OutputTables, ["run", "report"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Run file of ism-dask",
        **top,
        "properties": {**top["properties"], **tables},
        "required": ["data"],
        "oneOf": [
            {"anyOf": [{"required": ["fit"]}, {"required": ["crossval"]}]},
            {"required": ["cluster"]},
            {"required": ["unfold"]},
        ],
    }


def _term() -> dict[str, Any]:
    """Return the schema of a term of a sum of kernels that is a table."""
    return {
        "type": "object",
        "properties": {
            "kernel": {"enum": [name for name in kernel_names() if name != SUM]},
            "weight": {"type": "number", "exclusiveMinimum": 0, "default": 1.0},
        },
        "additionalProperties": {"type": ["number", "string"]},
        "required": ["kernel"],
    }


def _entries(kind: type[Any], names: list[str], given: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of these fields: what each means, and its value or default."""
    fields = {each.name: each for each in dataclasses.fields(kind)}
    for name in names:
        about = fields[name].metadata["description"]
        yield from (f"# {line}" for line in wrap(about, _WIDTH))
        if name in given:
            yield f"{name} = {json.dumps(given[name])}"
        else:
            yield f"# {name} = {_default_text(fields[name], get_type_hints(kind)[name])}"
        yield ""


def _default_text(field: dataclasses.Field[Any], hint: Any) -> str:
    """Return the default of a field in TOML; for one without a default, an example."""
    if field.default_factory is not dataclasses.MISSING:
        return json.dumps(field.default_factory())
    if field.default is None:
        kind = _choices(hint)[-1]
        examples = {int: "2", float: "1.0", bool: "true", list: "[]", dict: "{}"}
        return examples.get(get_origin(kind) or kind, '""') + " # for example"
    return json.dumps(field.default)


def _object(kind: type[Any], names: list[str]) -> dict[str, Any]:
    fields = {each.name: each for each in dataclasses.fields(kind)}
    hints = get_type_hints(kind)
    required = [name for name in names if _has_no_default(fields[name])]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(fields[name], hints[name]) for name in names},
        **({"required": required} if required else {}),
    }


def _property(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    kinds = [_type(kind) for kind in _choices(hint)]
    schema: dict[str, Any] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if field.metadata["names"] is not None:
        schema = {**schema, "enum": field.metadata["names"]()}
    if field.default not in (None, dataclasses.MISSING):
        schema = {**schema, "default": field.default}
    return {**schema, "description": field.metadata["description"]}


def _type(hint: Any) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is list:
        return {"type": "array", "items": _type(inner[0])}
    if origin is dict:
        kinds = [_type(kind) for kind in _choices(inner[1])]
        return {"type": "object", "additionalProperties": {"anyOf": kinds}}
    return {"type": _TYPES[hint]}


def _choices(hint: Any) -> list[Any]:
    """Return the types of a union but for None, or the one type."""
    if get_origin(hint) in (Union, types.UnionType):
        return [each for each in get_args(hint) if each is not type(None)]
    return [hint]


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _names(kind: type[Any]) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]
