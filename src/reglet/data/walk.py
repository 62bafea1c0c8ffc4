"""The image files below a folder, found by one walk that opens none of them.

The index of a large folder is kept.  It is made anew when the modification time of a folder has changed, because a file
was added, removed or renamed.  A file that was only rewritten in place is not noticed.
"""

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reglet import progress
from reglet.data.index_file import Index, Names, kept_index, modified

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif", ".npy"})


def index_folder(root: Path, *, cache: Path | None = None) -> Index:
    """All image files below `root`, sorted folder by folder.  Hidden ones are left out.  Links are followed, but not in
    circles.

    The arrays are `folder_of` and `lengths`: the folder and the bytes of each file.  `about` has the folders, relative
    to the root (itself ""), and `odd`: entries with the name of an image that are no files, with the reason.
    """
    if not root.is_dir():
        raise ValueError(f"{root} is no folder")
    where = os.path.realpath(root)

    def now(about: dict[str, Any]) -> list[int]:
        return modified(*(f"{where}/{folder}" for folder in about["folders"]))

    return kept_index(["folder", where], lambda: _walk(where), now, cache=cache)


def file_name(index: Index, i: int) -> str:
    """Relative to the root."""
    folder = index.about["folders"][int(index.arrays["folder_of"][i])]
    return f"{folder}/{index.names[i]}" if folder else index.names[i]


def _walk(root: str) -> Index:
    folders: list[str] = []
    times: list[int] = []
    odd: dict[str, str] = {}
    folder_of, lengths = array("i"), array("q")

    def names() -> Iterator[str]:
        for folder, at, entry in _entries(root, "", (), folders, times):
            length = _file(entry)
            if isinstance(length, str):
                odd[f"{folder}/{entry.name}" if folder else entry.name] = length
                continue
            folder_of.append(at)
            lengths.append(length)
            yield entry.name

    found = Names.of(progress.track(names(), f"image files in {root}"))
    arrays: dict[str, NDArray[Any]] = {
        "folder_of": np.array(folder_of, np.int32),
        "lengths": np.array(lengths, np.int64),
    }
    return Index(found, arrays, {"folders": folders, "odd": odd}, times)


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
