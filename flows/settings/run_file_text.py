"""The commented run file that `ism-dask init` writes, and the JSON schema of run files."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from flows.settings.run_file import TABLES, DataTable, FileTables, RefreshTable
from storage.tables.files import table_name

# What is in a new file where the user has not named table and column.
_SOURCE, _LABEL, _OUT = "table.csv", "label", "new-features.csv"
# How a fit is cross-validated, too.
_CROSSVAL_TOO = (
    "",
    "# Cross-validate the fit, too: a run RUN-crossval, with the settings of [fit] and these.",
    "# [crossval]",
    "# folds = 10",
)
# What a short file has: of [data], and of the table of the flow.
_SHORT_DATA = ("source", "label", "drop", "keep", "missing")
_SHORT_FLOW = ("n_components", "n_clusters", "criterion", "kernel", "max_features", "folds")
_REFRESH = (
    "# With this table `ism-dask run FILE` refreshes the run: it fits again if the table has",
    "# changed, and publishes the new W if it is within these limits.",
    "# [refresh]",
)
_WIDTH = 88
# The example of a value, by the type of a setting that has no default.
_EXAMPLES = {int: "2", float: "1.0", bool: "true", list: "[]", dict: "{}"}


def commented_run_file(
    flow: str, source: str | None = None, label: str | None = None, *, full: bool = False
) -> str:
    """Return a run file in which settings have their meanings and defaults.

    It has those settings that most runs need or, if it is to be `full`, every one. Settings that
    are at their default are comments.
    """
    given = table_name(source or _SOURCE)  # that of the folder of a glob, if there is one
    name = re.sub(r"[^\w.-]+", "-", given).strip("-.") or "table"
    data = {"source": source or _SOURCE, "label": label or _LABEL}
    if not given:
        data["name"] = name
    known = {each.name for each in dataclasses.fields(TABLES[flow])}
    lines = [
        "# A run of ism-dask: `ism-dask run FILE` computes it, `--dry-run` shows what it would do.",
        "# Lines that begin with # are comments; remove the # to change a default.",
        *([] if full else ["# `ism-dask init FILE --full` writes all settings."]),
        "",
        *_entries(FileTables, {"run": name, "report": f"{name}.html"}, ("run", "report")),
        "[data]",
        *_entries(DataTable, data, None if full else (*data, *_SHORT_DATA[2:])),
        f"[{flow}]",
        *_entries(TABLES[flow], {}, None if full else filter(known.__contains__, _SHORT_FLOW)),
        *(_REFRESH if flow == "fit" else ()),
        *(_entries(RefreshTable, {}) if full and flow == "fit" else ()),
        "# Rows to project after the fit; repeat the table for more files.",
        "# [[transform]]",
        f'# source = "{data["source"]}"',
        f'# out = "{_OUT}"',
        *(_CROSSVAL_TOO if flow == "fit" else ()),
    ]
    return "\n".join(lines) + "\n"


class _WithoutNull(GenerateJsonSchema):
    """Makes JSON schemas for TOML, which has no null: a key without a value is left out."""

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        empty = schema.get("default", "") is None
        return self.generate_inner(schema["schema"]) if empty else super().default_schema(schema)


def schema_text() -> str:
    """Return the JSON schema of run files, for editors that check TOML by one."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(FileTables).json_schema(schema_generator=_WithoutNull),
        "title": "Run file of ism-dask",
        "oneOf": [
            {"anyOf": [{"required": ["fit"]}, {"required": ["crossval"]}]},
            {"required": ["cluster"]},
        ],
    }
    return json.dumps(schema, indent=2) + "\n"


def _entries(
    kind: Any, given: Mapping[str, str], names: Iterable[str] | None = None
) -> Iterator[str]:
    """Yield the lines of these fields, by default all: what each means, its value or default."""
    fields, hints = {each.name: each for each in dataclasses.fields(kind)}, get_type_hints(kind)
    for name in fields if names is None else names:
        yield from (f"# {line}" for line in wrap(fields[name].metadata["description"], _WIDTH))
        if name in given:
            yield f"{name} = {json.dumps(given[name])}"
        elif fields[name].default is not None:
            yield f"# {name} = {json.dumps(fields[name].default)}"
        else:
            kinds = [get_origin(each) or each for each in get_args(hints[name])]
            example = next((_EXAMPLES[each] for each in kinds if each in _EXAMPLES), '""')
            yield f"# {name} = {example} # for example"
        yield ""
