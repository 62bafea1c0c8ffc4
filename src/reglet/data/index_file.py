"""An index of many files, as arrays in one file: written once and atomically, mapped by all processes.

Large folders, tar shards and tables have one in the cache.  It is rebuilt when a modification time of its source has
changed.
"""

import hashlib
import json
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reglet.atomic import replacing

CACHED_FROM = 2_000  # rows: of fewer files everything is read again sooner than an index is found
_VERSION = 2
_YOUNG = 2.0  # seconds: what changed so short ago may change again within the clock's resolution


class Names:
    """Many names in one array of bytes.

    letters: the bytes of all names.  ends: where each name ends.

    >>> names = Names.of(["a.png", "b.png"])
    >>> len(names), names[1]
    (2, 'b.png')
    """

    def __init__(self, letters: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.letters, self.ends = letters, ends

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        letters, ends = bytearray(), array("q")
        for name in names:
            letters += os.fsencode(name)
            ends.append(len(letters))
        return cls(np.frombuffer(bytes(letters), np.uint8), np.array(ends, np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> str:
        start = int(self.ends[i - 1]) if i else 0
        return os.fsdecode(self.letters[start : int(self.ends[i])].tobytes())


class Index(NamedTuple):
    """names: of the rows.  arrays: each has one value per row.  about: everything else, as JSON values.

    times: modification times of the source; the index is valid while they are unchanged.
    """

    names: Names
    arrays: dict[str, NDArray[Any]]
    about: dict[str, Any]
    times: list[int]

    def digest(self, *names: str) -> str:
        """A digest of the rows' names, of the arrays called `names`, and of `about`."""
        state = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode())
        for values in (self.names.letters, self.names.ends, *(self.arrays[name] for name in names)):
            state.update(np.ascontiguousarray(values).data)
        return state.hexdigest()[:16]


def kept_index(
    of: Sequence[str], make: Callable[[], Index], now: Callable[[dict[str, Any]], list[int]], *, cache: Path | None
) -> Index:
    """The index of what `of` names: from the cache, if it is valid there.  Otherwise it is made, and kept if large.

    now: `about` -> the current times.
    cache: default: $REGLET_CACHE, or reglet in the user's cache.
    """
    key = hashlib.sha256("\0".join(of).encode(errors="surrogateescape")).hexdigest()[:20]
    file = (cache or cache_folder()) / "index" / f"{key}.idx"
    if (found := _mapped(file, now)) is not None:
        return found
    with _one_process(file.parent):  # the others wait, and map what the first one wrote
        return _mapped(file, now) or _made(file, make, now)


def modified(*paths: str | Path) -> list[int]:
    """The times of these files or folders."""
    return [os.stat(path).st_mtime_ns for path in paths]  # noqa: PTH116  of ImageNet a thousand


def cache_folder() -> Path:
    if given := os.environ.get("REGLET_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reglet"


def _made(file: Path, make: Callable[[], Index], now: Callable[[dict[str, Any]], list[int]]) -> Index:
    start = time.time()
    index = make()
    if len(index.names) < CACHED_FROM or start - max(index.times) / 1e9 < _YOUNG:
        return index
    try:
        _write(file, index)
    except OSError:  # a cache that cannot be written is no reason to stop
        return index
    return _mapped(file, now) or index


def _write(file: Path, index: Index) -> None:
    """A line of JSON, then the arrays, each at a multiple of 64 bytes."""
    arrays = {**index.arrays, "letters": index.names.letters, "ends": index.names.ends}
    shapes = {name: [str(values.dtype), len(values)] for name, values in arrays.items()}
    head = {"version": _VERSION, "arrays": shapes, "about": index.about, "times": index.times}
    with replacing(file) as fresh, fresh.open("wb") as out:
        out.write(json.dumps(head).encode() + b"\n")
        for values in arrays.values():
            out.write(b"\0" * (-out.tell() % 64))
            out.write(np.ascontiguousarray(values).data)


def _mapped(file: Path, now: Callable[[dict[str, Any]], list[int]]) -> Index | None:
    """The index in `file`, if there is one and it is still right."""
    try:
        with file.open("rb") as source:
            head = json.loads(source.readline())
            place = source.tell()
        if head["version"] != _VERSION or now(head["about"]) != head["times"]:
            return None
        arrays: dict[str, NDArray[Any]] = {}
        for name, (kind, length) in head["arrays"].items():
            place += -place % 64
            # Copy on write: torch wants memory that it may write to, and never does.
            arrays[name] = np.memmap(file, kind, "c", place, (length,))
            place += arrays[name].nbytes
        names = Names(arrays.pop("letters"), arrays.pop("ends"))
        return Index(names, arrays, head["about"], head["times"])
    except (OSError, ValueError, KeyError):
        return None


@contextmanager
def _one_process(folder: Path) -> Iterator[None]:
    """Where the system can lock files; elsewhere each process makes the index for itself."""
    try:
        import fcntl

        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except (ImportError, OSError):
        yield
        return
    with lock:
        yield
