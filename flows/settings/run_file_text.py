"""The commented run file that `ism-dask init` writes."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from textwrap import wrap
from typing import Any, get_args, get_origin, get_type_hints

from jinja2 import Template

from flows.settings.base import import_choices
from flows.settings.run_file import TABLES, DataTable, FileTables, RefreshTable
from storage.tables.files import table_name

# What a short file has: of [data], and of the table of the flow.
_SHORT_DATA = ("source", "label", "name", "drop", "keep", "missing")
_SHORT_FLOW = ("n_components", "n_clusters", "criterion", "kernel", "max_features", "folds")
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
    data = {"source": source or "table.csv"}
    if label or import_choices().is_table(data["source"]):  # another data set has labels
        data["label"] = label or "label"
    given = table_name(data["source"])  # that of the folder of a glob, if there is one
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", given).strip("-.") or "table"
    if name != given:
        data["name"] = name
    short_data = [each for each in _SHORT_DATA if each != "name" or name != given]
    template = (files("flows.settings") / "run-file.toml.jinja").read_text(encoding="utf-8")
    text: str = Template(template, trim_blocks=True, keep_trailing_newline=True).render(
        flow=flow,
        full=full,
        top=_entries(FileTables, {"run": name, "report": f"{name}.html"}, ("run", "report")),
        data=_entries(DataTable, data, None if full else short_data),
        settings=_entries(TABLES[flow], {}, None if full else _SHORT_FLOW),
        limits=_entries(RefreshTable, {}),
        source=json.dumps(data["source"], ensure_ascii=False),
    )
    return text.replace("\x7f", r"\u007f")  # which JSON has as it is


def _entries(kind: Any, given: Mapping[str, str], names: Iterable[str] | None = None) -> str:
    """Return the lines of these fields, by default all: what each means, its value or default."""
    fields, hints = {each.name: each for each in dataclasses.fields(kind)}, get_type_hints(kind)
    lines: list[str] = []
    for name in fields if names is None else filter(fields.__contains__, names):
        lines += [f"# {line}" for line in wrap(fields[name].metadata["description"], _WIDTH)]
        if name in given:
            lines.append(f"{name} = {json.dumps(given[name], ensure_ascii=False)}")
        elif fields[name].default is not None:
            lines.append(f"# {name} = {json.dumps(fields[name].default)}")
        else:
            kinds = [get_origin(each) or each for each in get_args(hints[name])]
            example = next((_EXAMPLES[each] for each in kinds if each in _EXAMPLES), '""')
            lines.append(f"# {name} = {example} # for example")
        lines.append("")
    return "\n".join(lines)
