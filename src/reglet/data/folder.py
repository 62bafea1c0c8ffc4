"""Images in a folder: as they lie, in class/, or in domain/class/."""

import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from reglet.data.decode import open_file
from reglet.data.files import Known, numbered
from reglet.data.walk import SUFFIXES, Index, index_folder

STRAY = 0.05  # share of the files that may lie elsewhere and be left out, where the others make classes


class FolderFiles:
    """The image files below `root`, with labels and domains by the folders they are in."""

    def __init__(self, root: Path, *, name: str = "") -> None:
        self.name, self.root = name or root.name, root
        index = index_folder(root)
        if not len(index):
            raise ValueError(f"{root} has no images: no file ends in {', '.join(sorted(SUFFIXES))}")
        _report_odd(root, index)
        self.index = index
        self.rows, depth = _regular(root, index)
        self.known = _known(index, self.rows, depth)
        self.fingerprint = index.digest()

    def __len__(self) -> int:
        return len(self.index) if self.rows is None else len(self.rows)

    def file_name(self, i: int) -> str:
        return self.index.file_name(self._row(i))

    def open(self, i: int) -> BinaryIO:
        return open_file(f"{self.index.root}/{self.file_name(i)}")

    def length(self, i: int) -> int:
        return int(self.index.lengths[self._row(i)])

    def _row(self, i: int) -> int:
        return i if self.rows is None else int(self.rows[i])


def _report_odd(root: Path, index: Index) -> None:
    if index.odd:
        name, reason = next(iter(index.odd.items()))
        warnings.warn(
            f"{len(index.odd)} in {root} have the name of an image and are left out, such as {name}: {reason}",
            stacklevel=4,
        )


def _regular(root: Path, index: Index) -> tuple[NDArray[Any] | None, int]:
    """The files that lie as deep as most do (None: all), and how deep; -1 where that makes no classes."""
    deep = np.array([folder.count("/") + 1 if folder else 0 for folder in index.folders])[index.folder_of]
    counts = np.bincount(deep)
    usual = int(counts.argmax())
    strays = np.flatnonzero(deep != usual)
    if not len(strays):
        return None, usual
    first = index.file_name(int(strays[0]))
    if usual in (1, 2) and len(strays) <= max(1, STRAY * len(index)):
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
    of = index.folder_of if rows is None else index.folder_of[rows]
    used = np.unique(of)  # a folder that only holds folders is no class
    names = [index.folders[k] for k in used]

    def by(part: int) -> tuple[torch.Tensor, list[str]]:
        number, every = numbered([name.split("/")[part] for name in names])
        table = np.zeros(len(index.folders), np.int64)
        table[used] = number.numpy()
        return torch.from_numpy(table[of]), every

    return Known(*by(-1)) if depth == 1 else Known(*by(-1), *by(0))
