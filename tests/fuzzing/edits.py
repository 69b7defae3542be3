"""Change bytes, literals, files and Zarr folders at random, and correct their digests."""

import gzip
import json
import re
from contextlib import suppress

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
_VALUES = (*_TEXTS, None, True, False, *_NUMBERS, 10**400, 0.5, 1e308, -1e308, 5e-324)
_VALUES += ([], {}, [[]], [0], [None], {"": None}, {"__float__": "nan"}, {"__float__": "x"})
# A text, a number, or a word of JSON and of TOML.
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.e+-]*|\b(?:true|false|null|nan|inf)\b')
_HOSTILE = [*map(json.dumps, _VALUES), *_DATES, "nan", "-inf"]


def edit_bytes(rng, data):
    """Return bytes of which one to five pieces are replaced, gone, or preceded by others."""
    edited = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        at, size = rng.randrange(len(edited) + 1), rng.choice((1, 2, 4, 8, rng.randint(1, 256)))
        number, width = rng.choice(_NUMBERS), rng.choice((1, 2, 4, 8))
        integer = (number % 2 ** (8 * width)).to_bytes(width, rng.choice(("little", "big")))
        flipped = bytes(each ^ 1 << rng.randrange(8) for each in edited[at : at + 1])
        copy = edited[at : at + size]
        content = rng.choice((flipped, integer, rng.randbytes(size), rng.choice(_TOKENS), copy))
        stop = at + rng.choice((0, len(content)))
        edited[at:stop] = rng.choice((content, content, content, b""))
    return bytes(edited[: rng.randrange(len(edited) + 1)] if rng.random() < 0.05 else edited)


def edit_literals(rng, text):
    """Return JSON or TOML in which one to three texts, numbers or names of fields are others."""
    for _ in range(rng.randint(1, 3)):
        found = [*_LITERAL.finditer(text)]
        if found:
            old = rng.choice(found)
            # What is alike gets past checks of types, and can be the name of a field.
            alike = [each for each in _HOSTILE if (each[:1] == '"') == (old[0][:1] == '"')]
            new = rng.choice((rng.choice(alike), rng.choice(_HOSTILE), rng.choice(found)[0]))
            text = text[: old.start()] + new + text[old.end() :]
    return text


def edit_json(rng, data):
    """Return JSON with other literals, mostly those of its text `record`; sealed if it was."""
    tree = json.loads(data)
    sealed = tree.pop("digest", None) is not None
    attributes = tree.get("attributes") or {}
    if "record" in attributes and rng.random() < 0.95:
        attributes["record"] = edit_literals(rng, attributes["record"])
        edited = json.dumps(tree, indent=1)
    else:
        edited = edit_literals(rng, json.dumps(tree, indent=1))
    with suppress(storage.StorageError, TypeError, ValueError):  # what no record can hold
        edited = to_sealed_json(loads(edited)) if sealed else edited
    return edited.encode()


def edit_file(rng, path):
    """Change what a file holds in the way of its format, or any of its bytes."""
    data, suffix = path.read_bytes(), path.suffix if rng.random() < 0.8 else ""
    if suffix == ".gz":
        edited = gzip.compress(edit_bytes(rng, gzip.decompress(data)), 1)
    elif suffix == ".toml":
        edited = edit_literals(rng, re.sub("(?m)^#.*\n", "", data.decode())).encode()
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
