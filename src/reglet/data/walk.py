"""The image files below a folder, by one walk that opens none of them, kept as an index that processes share.

Of a large folder the index is written to the cache and mapped from there, by all ranks and later runs.  It is made anew
when the modification time of one of the folders has changed: a file came, went or was renamed.  A file that was only
rewritten in place is not noticed.
"""

import hashlib
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif", ".npy"})
CACHED_FROM = 2_000  # files: a smaller folder is read again sooner than its index is found
_VERSION = 1
_YOUNG = 2.0  # seconds: a folder that changed so short ago may change again within the clock's resolution
_EVERY = 20_000  # files between two words about the progress


@dataclass(frozen=True)
class Index:
    """Files in the order of their paths, compared folder by folder.

    folders: relative to the root, "" for itself.  folder_of, lengths: of each file its folder and its bytes.
    letters, ends: all file names in one row of bytes, and where each one ends.
    odd: what has the name of an image and is no file, with the reason.
    """

    root: str
    folders: list[str]
    folder_of: NDArray[np.int32]
    lengths: NDArray[np.int64]
    letters: NDArray[np.uint8]
    ends: NDArray[np.int64]
    odd: dict[str, str]

    def __len__(self) -> int:
        return len(self.ends)

    def file_name(self, i: int) -> str:
        """Relative to the root."""
        start = int(self.ends[i - 1]) if i else 0
        name = os.fsdecode(self.letters[start : int(self.ends[i])].tobytes())
        folder = self.folders[int(self.folder_of[i])]
        return f"{folder}/{name}" if folder else name

    def digest(self) -> str:
        """Of names and lengths."""
        state = hashlib.sha256("\0".join(self.folders).encode(errors="surrogateescape"))
        for values in (self.folder_of, self.lengths, self.letters, self.ends):
            state.update(np.ascontiguousarray(values).data)
        return state.hexdigest()[:16]


def index_folder(root: Path, *, cache: Path | None = None, says: Callable[[str], None] | None = None) -> Index:
    """All image files below `root`; hidden ones are left out.  Links are followed, and those in a circle cut.

    cache: where indices are kept; default: $REGLET_CACHE, or reglet in the user's cache.
    says: hears of the progress; default: the standard error, where that is a terminal.
    """
    if not root.is_dir():
        raise ValueError(f"{root} is no folder")
    where = os.path.realpath(root)
    file = (cache or cache_folder()) / "index" / f"{hashlib.sha256(where.encode()).hexdigest()[:20]}.idx"
    if (found := _mapped(file, where)) is not None:
        return found
    start = time.time()
    index, times = _walk(where, says or _to_terminal)
    if len(index) >= CACHED_FROM and start - max(times) / 1e9 > _YOUNG:
        try:
            _write(file, index, times)
        except OSError:  # a cache that cannot be written is no reason to stop
            return index
        return _mapped(file, where) or index
    return index


def cache_folder() -> Path:
    if given := os.environ.get("REGLET_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reglet"


def _walk(root: str, says: Callable[[str], None]) -> tuple[Index, list[int]]:
    folders: list[str] = []
    times: list[int] = []
    odd: dict[str, str] = {}
    letters, ends, folder_of, lengths = bytearray(), array("q"), array("i"), array("q")
    for folder, at, entry in _entries(root, "", (), folders, times):
        info = _file(entry)
        if isinstance(info, str):
            odd[f"{folder}/{entry.name}" if folder else entry.name] = info
            continue
        letters += os.fsencode(entry.name)
        ends.append(len(letters))
        folder_of.append(at)
        lengths.append(info)
        if len(ends) % _EVERY == 0:
            says(f"{root}: {len(ends):,} image files")
    arrays = (np.array(folder_of, np.int32), np.array(lengths), np.frombuffer(bytes(letters), np.uint8), np.array(ends))
    return Index(root, folders, *arrays, odd), times


def _entries(
    root: str, folder: str, above: tuple[tuple[int, int], ...], folders: list[str], times: list[int]
) -> Iterator[tuple[str, int, "os.DirEntry[str]"]]:
    """(folder, its number, entry) of everything that has the name of an image, sorted folder by folder."""
    path = os.path.join(root, folder) if folder else root  # noqa: PTH118  a million of them
    info = os.stat(path)  # noqa: PTH116
    own = info.st_dev, info.st_ino
    if own in above:  # a link to a folder that it lies in
        return
    at = len(folders)
    folders.append(folder)
    times.append(info.st_mtime_ns)
    with os.scandir(path) as found:
        entries = sorted((e for e in found if not e.name.startswith(".")), key=lambda e: e.name)
    for entry in entries:
        if entry.is_dir():
            below = f"{folder}/{entry.name}" if folder else entry.name
            yield from _entries(root, below, (*above, own), folders, times)
        elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:  # noqa: PTH122
            yield folder, at, entry


def _file(entry: "os.DirEntry[str]") -> int | str:
    """The bytes of a regular file, or why it is none."""
    try:
        if not entry.is_file():
            return "it is no regular file" if os.path.exists(entry.path) else "the link leads nowhere"  # noqa: PTH110
        return entry.stat().st_size
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def _write(file: Path, index: Index, times: list[int]) -> None:
    """A line of JSON, then the arrays, each at a multiple of 64 bytes; in place at once."""
    arrays: dict[str, NDArray[Any]] = {
        name: getattr(index, name) for name in ("folder_of", "lengths", "letters", "ends")
    }
    shapes = {name: [str(values.dtype), len(values)] for name, values in arrays.items()}
    about = {"version": _VERSION, "root": index.root, "arrays": shapes, "odd": index.odd}
    head = json.dumps({**about, "folders": index.folders, "times": times}).encode() + b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    with fresh.open("wb") as out:
        out.write(head)
        for values in arrays.values():
            out.write(b"\0" * (-out.tell() % 64))
            out.write(values.data)
    fresh.replace(file)


def _mapped(file: Path, root: str) -> Index | None:
    """The index in `file`, if it is one of this folder and still right."""
    try:
        with file.open("rb") as source:
            about = json.loads(source.readline())
            place = source.tell()
        if about["version"] != _VERSION or about["root"] != root:
            return None
        for folder, then in zip(about["folders"], about["times"], strict=True):
            if os.stat(os.path.join(root, folder)).st_mtime_ns != then:  # noqa: PTH116, PTH118
                return None
        arrays = []
        for kind, length in about["arrays"].values():
            place += -place % 64
            # Copy on write: torch wants memory that it may write to, and never does.
            arrays.append(np.memmap(file, kind, "c", place, (length,)))
            place += arrays[-1].nbytes
        folder_of, lengths, letters, ends = arrays
        return Index(root, about["folders"], folder_of, lengths, letters, ends, about["odd"])
    except (OSError, ValueError, KeyError):
        return None


def _to_terminal(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr, flush=True)
