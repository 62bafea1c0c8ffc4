"""Images in a folder: without order, in class/, or in domain/class/."""

import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from reglet.data.decode import open_file
from reglet.data.files import Known, is_utf8, numbered, readable
from reglet.data.index_file import Index
from reglet.data.walk import SUFFIXES, file_name, index_folder

STRAY = 0.05  # share of the files that may lie elsewhere and be left out, where the others make classes


class FolderFiles:
    """The image files below `root`.  The folders give labels and domains.

    every: keep every file.  If some are not at the same depth as most, there are no labels.
    """

    def __init__(self, root: Path, *, name: str = "", every: bool = False) -> None:
        self.name, self.root = name or root.name, root.resolve()
        index = index_folder(root)
        if not len(index.names):
            raise ValueError(f"{root} has no images: no file ends in {', '.join(sorted(SUFFIXES))}{_instead(root)}")
        _report_odd(root, index.about["odd"])
        self.index = index
        self.rows, depth = _regular(root, index, every=every)
        self.known = _known(index, self.rows, depth)
        self.fingerprint = index.digest("folder_of", "lengths")
        lengths = index.arrays["lengths"]
        self.lengths: NDArray[np.int64] = lengths if self.rows is None else lengths[self.rows]

    def __len__(self) -> int:
        return len(self.lengths)

    def file_name(self, i: int) -> str:
        return file_name(self.index, i if self.rows is None else int(self.rows[i]))

    def open(self, i: int) -> BinaryIO:
        return open_file(self.root / self.file_name(i))


class OneFile:
    """A single image."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.known = path, path.name, Known()
        info = path.stat()
        self.fingerprint = f"{path.name} {info.st_size} {info.st_mtime_ns}"
        self.lengths = np.array([info.st_size])

    def __len__(self) -> int:
        return 1

    def file_name(self, i: int) -> str:
        return self.path.name

    def open(self, i: int) -> BinaryIO:
        return open_file(self.path)


def is_image(path: Path) -> bool:
    """By its name."""
    return path.suffix.lower() in SUFFIXES


def _instead(root: Path) -> str:
    """Where other readers find something."""
    if any((root / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")):
        return f". It looks like a set that Hugging Face's library saved: data=hf/{root}"
    return f". It has .parquet files: data=hf/{root}" if any(root.rglob("*.parquet")) else ""


def _report_odd(root: Path, odd: dict[str, str]) -> None:
    if odd:
        name, reason = next(iter(odd.items()))
        warnings.warn(
            f"{len(odd)} in {root} have the name of an image and are left out, such as {name}: {reason}",
            stacklevel=4,
        )


def _regular(root: Path, index: Index, *, every: bool) -> tuple[NDArray[Any] | None, int]:
    """The files that lie as deep as most do (None: all), and how deep; -1 where that makes no classes."""
    depths = np.array([folder.count("/") + 1 if folder else 0 for folder in index.about["folders"]], np.int8)
    deep = depths[index.arrays["folder_of"]]
    counts = np.bincount(deep)
    usual = int(counts.argmax())
    strays = np.flatnonzero(deep != usual)
    if every or not len(strays):
        return None, -1 if len(strays) else usual
    first = file_name(index, int(strays[0]))
    if usual in (1, 2) and len(strays) <= max(1, STRAY * len(deep)):
        layout = "class/" if usual == 1 else "domain/class/"
        warnings.warn(
            f"{root} has its images in {layout}, except for {len(strays)}, which are left out: {first}"
            f"{', ...' if len(strays) > 1 else ''}",
            stacklevel=4,
        )
        return np.flatnonzero(deep == usual), usual
    found = ", ".join(f"{count} images {d} folders deep" for d, count in enumerate(counts) if count)
    warnings.warn(
        f"{root} has {found}, so that folders are not taken for classes: there are no labels. For labels all images "
        "lie in class/ or in domain/class/, or a table has them (table=labels.csv)",
        stacklevel=4,
    )
    return None, -1


def _known(index: Index, rows: NDArray[Any] | None, depth: int) -> Known:
    """Labels and domains from the lowest and the highest folder, if images lie one or two deep."""
    if depth not in (1, 2):
        return Known()
    folders, of = index.about["folders"], index.arrays["folder_of"]
    of = of if rows is None else of[rows]
    used = np.unique(of)  # a folder that only holds folders is no class
    names = [folders[k] for k in used]
    for name in names:  # it goes into config.json, cards and pages
        if not is_utf8(name):
            raise ValueError(f"the name of the folder {readable(name)} is not UTF-8, and it names a class: rename it")

    def by(part: int) -> tuple[torch.Tensor, list[str]]:
        number, every = numbered([name.split("/")[part] for name in names])
        table = np.zeros(len(folders), np.int64)
        table[used] = number.numpy()
        return torch.from_numpy(table[of]), every

    return Known(*by(-1)) if depth == 1 else Known(*by(-1), *by(0))
