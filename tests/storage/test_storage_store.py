"""The checked store, and names: nothing unchecked is read, nothing out of the home touched."""

import os
from asyncio import run
from dataclasses import replace

import numpy as np
import pytest
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from storage import DamagedStore, UnsafeName, home, load_model, open_dataset, safe_name
from storage.manifest import MANIFEST, Manifest, check_presence, read_manifest
from storage.paths import resolve_under
from storage.store import CheckedStore, commit_group, put_array

CHUNK, META, START = "x/c.0.0", "x/zarr.json", RangeByteRequest(0, 4)
PROTOTYPE = default_buffer_prototype()


async def _gathered(stream):
    return [each async for each in stream]


async def _ranges(store, key):
    """Return what a store reads of one range; its errors come in groups."""
    ranges = getattr(store, "get_ranges")  # noqa: B009 - not in Zarr before 3.2
    try:
        return [each async for each in ranges(key, [START], prototype=PROTOTYPE)]
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


# Every method that reads bytes, called for one file.
_ANY_READS = {
    "get": lambda store, key: run(store.get(key, PROTOTYPE)),
    "get_sync": lambda store, key: store.get_sync(key, prototype=PROTOTYPE),
    "get_partial_values": lambda store, key: run(
        store.get_partial_values(PROTOTYPE, [(key, START)])
    ),
    "_get_many": lambda store, key: run(_gathered(store._get_many([(key, PROTOTYPE, None)]))),
    # From Zarr 3.2 on.
    "get_ranges": lambda store, key: run(_ranges(store, key))[0][0],
    "get_ranges_sync": lambda store, key: store.get_ranges_sync(key, [START], prototype=PROTOTYPE),
}
READS = {name: read for name, read in _ANY_READS.items() if hasattr(MemoryStore, name)}
PARTS = {"get_partial_values", "get_ranges", "get_ranges_sync"}


@pytest.fixture
def root(tmp_path):
    def fill(group):
        put_array(group, "x", np.arange(12.0).reshape(4, 3))
        return "a digest"

    commit_group(tmp_path / "group", 1, {}, fill)
    return tmp_path / "group"


def opened(root):
    return CheckedStore(root, read_manifest(root).files)


@pytest.mark.parametrize("method", READS)
def test_each_read_is_checked_and_returns_what_was_written(root, method):
    whole = (root / META).read_bytes()
    answer = READS[method](opened(root), META)
    for kind, at in ((list, 0), (tuple, 1)):
        answer = answer[at] if isinstance(answer, kind) else answer
    assert answer.to_bytes() == (whole[:4] if method in PARTS else whole)
    store = opened(root)
    for key in (CHUNK, META):
        READS[method](store, key)
        content = bytearray((root / key).read_bytes())
        content[len(content) // 2] ^= 1
        (root / key).write_bytes(bytes(content))
        with pytest.raises(DamagedStore):
            READS[method](store, key)
    (root / "x/c.9.9").write_bytes(b"stranger")
    with pytest.raises(DamagedStore, match="does not list it"):
        READS[method](store, "x/c.9.9")


def test_a_pipe_in_place_of_a_chunk_is_damage(root):
    """To read it would not end."""
    (root / CHUNK).unlink()
    os.mkfifo(root / CHUNK)
    with pytest.raises(DamagedStore, match=CHUNK):
        opened(root).get_sync(CHUNK, prototype=PROTOTYPE)
    with pytest.raises(DamagedStore, match=CHUNK):
        check_presence(root, read_manifest(root))


@pytest.mark.parametrize(
    ("length", "hashed"),
    [(1.5, "a"), ("1", "a"), (True, "a"), (-1, "a"), (10**400, "a"), (1, None)],
)
def test_a_manifest_with_other_types_is_damage(root, length, hashed):
    entry = replace(next(iter(read_manifest(root).files.values())), bytes=length)
    (root / MANIFEST).write_text(Manifest({CHUNK: entry}, hashed).text)
    with pytest.raises(DamagedStore, match="another type"):
        read_manifest(root)


BAD = ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", ".hidden", "a\0", "é", "a b", "x" * 129]


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_everywhere(name):
    for use in (safe_name, open_dataset, load_model, lambda n: resolve_under(home(), n)):
        with pytest.raises(UnsafeName, match="expected 1 to 128"):
            use(name)
