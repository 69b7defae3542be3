"""Find the files of a table: one file, a folder, a glob or a list of them, local or remote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import glob_translate

from storage.errors import TableError
from storage.records import is_utf8

# Suffixes of the formats that hold columns with types; pyarrow reads and writes them.
COLUMNAR = (".parquet", ".feather", ".arrow")
# Suffixes of all formats that can be read; and of others, with what to do about them.
SUFFIXES = (".csv", ".tsv", *COLUMNAR, ".npy")
_ARRAYS = (".npz", ".zarr", ".h5", ".hdf5")
_SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
_READABLE = ", ".join(sorted(SUFFIXES))
_ADVICE = {
    **dict.fromkeys(
        _ARRAYS,
        "holds arrays, which are no table: in Python, `storage.ingest_table(array, name)` stores "
        "an array as a data set; or save it as .npy",
    ),
    **dict.fromkeys(
        _SHEETS,
        "is a spreadsheet; save it as CSV, with any separator and encoding, or in Python give "
        "`ingest_table` the frame of pandas.read_excel",
    ),
}
_GLOB = frozenset("*?[")
# What pyarrow says before the reason why it cannot open a file; the path is all that matters.
_WORDY = re.compile(
    r"(?:Error creating dataset.*?|Could not open CSV )input source '([^']*)': (?:Invalid: )?", re.S
)
# How pyarrow words a cell that does not fit the type of its column.
_MISFIT = re.compile(r"column #?'?(.+?)'?: .*?conversion error to (.+?): invalid value '(.*)'")
# What it calls the types of columns, in words.
_KINDS = {"double": "numbers", "bool": "booleans", "date32": "dates", "timestamp": "times"}
# How it says that a text is in another encoding.
NOT_UTF8 = "invalid UTF8 data"
# What a file system may record of a file's version, best first.
_VERSIONS = (
    "ETag",
    "etag",
    "md5Hash",
    "mtime",
    "LastModified",
    "updated",
    "created",
    "Last-Modified",
    "Content-MD5",
)


@dataclass(frozen=True)
class SourceFile:
    """A file that a table was read from, and the version that it had then."""

    path: str  # with its protocol, such as `s3://`, unless it is local
    bytes: int | None  # None if its server does not tell
    version: str  # its etag or its time of modification; empty if neither is recorded


def have_versions(files: Sequence[SourceFile]) -> bool:
    """Return whether each of the files, if any, has a version, so that a change would show."""
    return bool(files) and all(file.version for file in files)


@dataclass(frozen=True, eq=False)
class TableFiles:
    """The files of a table in the order of its rows, all in one file system."""

    filesystem: AbstractFileSystem
    paths: tuple[str, ...]  # without protocol, as the file system takes them
    suffix: str  # the format, such as ".csv": the last suffix, `.gz` aside
    folder: str | None = None  # that was given, if it was one; folders `key=value` are columns

    @property
    def is_local(self) -> bool:
        """Whether the files are on this machine's own file systems."""
        return isinstance(self.filesystem, LocalFileSystem)

    def versions(self) -> tuple[SourceFile, ...]:
        """Return each file with its present version."""
        self.filesystem.invalidate_cache()  # listings of a remote folder may be old
        with explain_errors(self.paths[0]):
            return tuple(self._version(path) for path in self.paths)

    @property
    def description(self) -> str:
        """The folder, or the file, or the first file and the number of others."""
        first, others = self.folder or self.paths[0], len(self.paths) - 1
        return f"{first} and {others} more" if others and self.folder is None else first

    def start(self, size: int) -> bytes:
        """Return the first bytes of the first file, unpacked, at most `size`."""
        first = self.paths[0]
        with explain_errors(first), self.filesystem.open(first, "rb", compression="infer") as file:
            return bytes(file.read(size))

    def _version(self, path: str) -> SourceFile:
        shown = path if self.is_local else self.filesystem.unstrip_protocol(path)
        info = self.filesystem.info(path)
        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        return SourceFile(shown, info.get("size"), version)


def find_files(source: str | Path | Sequence[str | Path]) -> TableFiles:
    """Return the files of a table: a file, a folder, a glob, or several.

    A str may be an address that fsspec reads. Raise a TableError if there are none, if their
    formats differ, or if no reader knows the format.
    """
    given = [source] if isinstance(source, str | Path) else list(source)
    if not given:
        raise TableError("the list of files is empty; name one or more")
    opened = [_opened(str(each)) for each in given]
    if len({type(filesystem) for filesystem, _ in opened}) > 1:
        raise TableError(f"the files are in different places: {', '.join(map(str, given))}")
    filesystem = opened[0][0]
    expanded = [_expanded(filesystem, path) for _, path in opened]
    # A list keeps its order; the files of a folder or glob are sorted by name.
    paths = list(dict.fromkeys(path for inside, _ in expanded for path in sorted(inside)))
    folder = expanded[0][1] if len(expanded) == 1 else None
    return TableFiles(filesystem, tuple(paths), _common_suffix(paths), folder)


def has_part(source: str, path: Path) -> bool:
    """Return whether a table has, or would have, a file: it is in its folder, or fits its glob."""
    given, there = Path(source.removeprefix("file://")).expanduser().resolve(), path.resolve()
    places, pattern = (there, *there.parents), glob_translate(str(given))
    return given in places or any(re.match(pattern, str(each)) for each in places)


def table_name(source: str | Path) -> str:
    """Return a name for the table in a file, folder or glob: its last part without suffixes."""
    parts = [part for part in PurePosixPath(str(source)).parts if not _GLOB & set(part)]
    return (parts[-1] if parts else "").split(".")[0]


def has_table_suffix(path: str) -> bool:
    """Return whether a path has the ending of a table, or of a file that may be taken for one."""
    return format_suffix(path) in (*SUFFIXES, *_ADVICE)


def format_suffix(path: str) -> str:
    """Return the last suffix of a path in lower case, `.gz` aside."""
    pure = PurePosixPath(path.lower())
    return PurePosixPath(pure.stem).suffix if pure.suffix == ".gz" else pure.suffix


@contextmanager
def explain_errors(description: str, names: Sequence[str] = ()) -> Iterator[None]:
    """Turn any error of reading into a TableError with the description of what was read.

    `names` are those of the columns of a text file.
    """
    try:
        yield
    except TableError:
        raise
    except FileNotFoundError as error:
        raise TableError(f"there is no file or folder {description}") from error
    # pyarrow, NumPy and the libraries for remote places have many types of errors.
    except Exception as error:
        reason = _reason(error, names).removeprefix(f"{description}: ")
        raise TableError(f"cannot read {description}: {reason}") from error


def _reason(error: Exception, names: Sequence[str]) -> str:
    misfit = _MISFIT.search(str(error))
    if NOT_UTF8 in str(error) or isinstance(error, UnicodeDecodeError):
        encoding = getattr(error, "encoding", "UTF-8")
        return f"some of its text is not {encoding}; name its encoding, such as --encoding cp1252"
    if misfit is None:
        words = getattr(error, "strerror", None) or ": ".join(map(str, error.args))
        return _WORDY.sub(r"\1: ", words)
    column, kind, value = misfit.groups()
    # The parser counts the columns of the file from 0.
    number = int(column) if column.isdigit() else len(names)
    name = names[number] if number < len(names) else column
    return (
        f"the column {name!r} has {value!r} among {_KINDS.get(kind.split('[')[0], kind)}; correct "
        "the value, or drop the column"
    )


def _opened(source: str) -> tuple[AbstractFileSystem, str]:
    try:
        filesystem, path = fsspec.core.url_to_fs(source)
    except (ImportError, ValueError) as error:
        raise TableError(f"cannot open {source}: {error}") from error
    filesystem.invalidate_cache()
    if ".." in PurePosixPath(path).parts and isinstance(filesystem, LocalFileSystem):
        path = str(Path(path).resolve())  # a file is the same by another way to it
    return filesystem, path


def _expanded(filesystem: AbstractFileSystem, path: str) -> tuple[list[str], str | None]:
    """Return the files that a path stands for, and the path itself if it is a folder of files."""
    with explain_errors(path):
        if _GLOB & set(path) and not filesystem.exists(path):
            matches, folder, nothing = filesystem.glob(path), None, f"no file matches {path}"
        elif (kind := filesystem.info(path)["type"]) != "directory":
            if kind == "other":  # to read a pipe or a device may take for ever
                raise TableError(f"{path} is no file, but a pipe or device; name a file")
            return [path], None
        elif format_suffix(path) in _ARRAYS:
            return [path], None
        else:
            inside, folder = filesystem.find(path), path
            matches = [each for each in inside if _is_part(each, path)]
            nothing = f"the folder {path} has no file that can be read; expected {_READABLE}"
    if not matches:
        raise TableError(nothing)
    if odd := [each for each in matches if not is_utf8(each)]:
        raise TableError(f"the name of the file {odd[0]!r} is not UTF-8; rename it")
    return matches, folder


def _is_part(path: str, folder: str) -> bool:
    """Return whether a file of a folder belongs to its table: none that is hidden or a record."""
    parts = PurePosixPath(path.removeprefix(folder)).parts
    return format_suffix(path) in SUFFIXES and not any(
        part.startswith((".", "_")) for part in parts
    )


def _common_suffix(paths: Sequence[str]) -> str:
    suffix, *others = sorted({format_suffix(path) for path in paths})
    if others:
        raise TableError(
            f"the files have different formats, {', '.join([suffix, *others])}; name those of one "
            "format"
        )
    if advice := _ADVICE.get(suffix):
        raise TableError(f"{paths[0]} {advice}")
    if suffix not in SUFFIXES:
        raise TableError(f"{paths[0]} has the suffix {suffix!r}; expected {_READABLE}")
    return suffix
