"""The form of the Prefect UI: what it shows of settings, and what it lets pass."""

from __future__ import annotations

import dataclasses
from typing import Any


def shown(kind: type[Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a dataclass of settings as the form of the UI wants it.

    The form cannot show a field of several types but as a row of buttons, and takes a default of
    null for a value. A field that may stay empty has one type and no default here, which the
    server reads as: or null.
    """
    fields = sorted(dataclasses.fields(kind), key=lambda each: not each.metadata["early"])
    properties = {each.name: _shown(each, schema["properties"][each.name]) for each in fields}
    for position, each in enumerate(properties.values()):
        # Databases keep no order.
        each["position"] = position
    return {**schema, "title": "Settings", "properties": properties}


def _shown(field: dataclasses.Field[Any], schema: dict[str, Any]) -> dict[str, Any]:
    kinds = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    if kinds:
        # Of several, text is the one that can be read as any.
        schema = {**schema, **kinds[-1]}
        del schema["anyOf"]
    if schema.get("default", "") is None:
        del schema["default"]
    if field.metadata["names"] is not None:
        schema = {**schema, "enum": field.metadata["names"]()}
    return {**schema, "title": field.metadata["title"] or _titled(field.name)}


def _titled(name: str) -> str:
    return name.replace("_", " ").capitalize()
