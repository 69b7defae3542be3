"""Change bytes, JSON, TOML, files and Zarr folders at random, and correct their digests."""

import gzip
import json
from contextlib import suppress
from copy import deepcopy

import numpy as np
import zarr

import storage
from storage.manifest import MANIFEST, read_manifest, write_manifest
from storage.records import loads, to_sealed_json
from storage.saved_arrays import RECORD

_NUMBERS = (0, 1, -1, 2, 127, 255, 2**15, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
_TOKENS = (b'"', b",", b"\n", b"\0", b"\xff\xfe", b"NaN", b"1e999", b"-", b"[", b"{", b"9" * 99)
_DATES = ("2026-11-28", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
_TEXTS = ("", "x" * 5000, "\ud800", "../../etc/passwd", "\0", "<b>", "1", "nan", "a=b", *_DATES)
_FLOATS = [{"__float__": each} for each in ("nan", "inf", "-inf", "x")]
_SCALARS = (None, True, False, *_NUMBERS, 10**400, 0.5, 1e308, -1e308, 5e-324)
_HOSTILE = (*_SCALARS, *_TEXTS, *_FLOATS, [], {}, [[]], [0], [None], {"": None})


def edit_bytes(rng, data):
    """Return bytes of which one to five pieces are replaced, gone, or preceded by others."""
    edited = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        at, size = rng.randrange(len(edited) + 1), rng.choice((1, 2, 4, 8, rng.randint(1, 256)))
        number, width = rng.choice(_NUMBERS), rng.choice((1, 2, 4, 8))
        integer = (number % 2 ** (8 * width)).to_bytes(width, rng.choice(("little", "big")))
        flipped = bytes(each ^ 1 << rng.randrange(8) for each in edited[at : at + 1])
        contents = (
            flipped,
            integer,
            rng.randbytes(size),
            rng.choice(_TOKENS),
            edited[at : at + size],
        )
        content = rng.choice(contents)
        edited[at : at + rng.choice((0, len(content)))] = rng.choice(
            (content, content, content, b"")
        )
    return bytes(edited[: rng.randrange(len(edited) + 1)] if rng.random() < 0.05 else edited)


def edit_tree(rng, tree):
    """Replace, delete or add one to three values of nested lists and mappings, in place."""
    for _ in range(rng.randint(1, 3)):
        if not tree:
            return
        inside, key = _branch(rng, tree)
        sibling, kind = inside[rng.choice(_keys(inside))], type(inside[key])
        alike = [each for each in _HOSTILE if type(each) is kind]  # gets past checks of types
        hostile = rng.choice(rng.choice((alike or _HOSTILE, _HOSTILE)))
        copies = (sibling, [sibling], {"": sibling})
        if rng.random() < 0.1:
            del inside[key]
            continue
        if isinstance(inside, dict) and rng.random() < 0.1:
            key = rng.choice(("x", "", "\ud800", "../x", "__float__"))
        inside[key] = deepcopy(rng.choice(copies) if rng.random() < 0.1 else hostile)


def _branch(rng, tree):
    """Return a list or mapping within a tree, and one of its keys."""
    key = rng.choice(_keys(tree))
    inner = isinstance(tree[key], dict | list) and len(tree[key]) and rng.random() < 0.8
    return _branch(rng, tree[key]) if inner else (tree, key)


def _keys(tree):
    return list(tree) if isinstance(tree, dict) else range(len(tree))


def edit_json(rng, text):
    """Return JSON with other values, those in its text `record` if it has one; sealed if it was."""
    tree = json.loads(text)
    sealed = tree.pop("digest", None) is not None
    attributes = tree.get("attributes") or {}
    record = json.loads(attributes["record"]) if rng.random() < 0.95 and attributes else None
    edit_tree(rng, tree if record is None else record)
    if record is not None:
        attributes["record"] = json.dumps(record)
    edited = json.dumps(tree, indent=1)
    with suppress(storage.StorageError, TypeError, ValueError):  # values that no record can hold
        edited = to_sealed_json(loads(edited)) if sealed else edited
    return edited.encode()


def edit_toml(rng, text):
    """Return TOML in which one to three lines have other values, are gone, or come twice."""
    lines = [line for line in text.decode().split("\n") if not line.startswith("#")]
    for _ in range(rng.randint(1, 3)):
        at = rng.choice([number for number, line in enumerate(lines) if "=" in line] or [0])
        value, key = rng.choice(_HOSTILE), lines[at].partition("=")[0]
        written = next(iter(value.values())) if value in _FLOATS else json.dumps(value)
        changed = f"{key} = {value if value in _DATES else written}"
        lines[at] = rng.choices((changed, "", f"{lines[at]}\n{rng.choice(lines)}"), (8, 1, 1))[0]
    return "\n".join(lines).encode()


def edit_file(rng, path):
    """Change what a file holds in the way of its format, or any of its bytes."""
    data, suffix = path.read_bytes(), path.suffix if rng.random() < 0.8 else ""
    if suffix == ".gz":
        edited = gzip.compress(edit_bytes(rng, gzip.decompress(data)), 1)
    elif suffix == ".toml":
        edited = edit_toml(rng, data)
    else:
        edited = (edit_json if suffix and data[:1] == b"{" else edit_bytes)(rng, data)
    path.write_bytes(edited)


def edit_folder(rng, root):
    """Change one to three files of a store, then list all right digests, or change these."""
    data_hash = read_manifest(root).data_hash if (root / MANIFEST).exists() else None
    for _ in range(rng.randint(1, 3)):
        files = sorted(each for each in root.rglob("*") if each.is_file() and each.name != MANIFEST)
        with suppress(Exception):  # an earlier edit may have left nothing to change
            record = next(each for each in (RECORD, "zarr.json") if (root / each).exists())
            path = rng.choice((root / record, rng.choice(files)))
            if rng.random() < 0.03:
                path.unlink()
            elif path.name.startswith("c.") and rng.random() < 0.8:
                edit_array(rng, path.parent)
            else:
                edit_file(rng, path)
    if data_hash is not None:
        (root / MANIFEST).unlink()
        write_manifest(root, data_hash)
        if rng.random() < 0.1:
            edit_file(rng, root / MANIFEST)


def edit_array(rng, folder):
    """Change numbers of an array in a Zarr folder."""
    values, length = np.array(zarr.open_array(folder, mode="r")[...]), rng.choice((1, 1, 5, None))
    number = rng.choice((np.nan, np.inf, 0.5, 1e300, 5e-324, *map(float, _NUMBERS)))
    values.reshape(-1)[rng.randrange(values.size) :][:length] = np.array(number)
    zarr.open_array(folder, mode="r+")[...] = values
