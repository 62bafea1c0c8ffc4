"""Images from a .npz archive."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reglet.data.memory import InMemory

KEYS = "images, and where known labels, domain, split"


def load_npz(path: Path, *, split: str = "") -> InMemory:
    """An archive with `images` (n, h, w), (n, h, w, c) or (n, c, h, w) of uint8 and, where known, `labels`, `domain`
    and `split`, each of length n; numbers or strings, which are sorted.  Nothing is unpickled.

    split: only the images whose `split` is this; "" takes all of them.
    """
    known = _read(path)
    if "images" not in known:
        raise ValueError(f"{path} has {', '.join(known) or 'nothing'}; expected {KEYS}")
    images = _channels_first(path, known["images"])
    keep = _of_split(path, known, split)
    labels, classes = _numbered(path, "labels", known, len(images))
    domain, domains = _numbered(path, "domain", known, len(images))
    return InMemory(
        images[keep],
        labels=None if labels is None else labels[keep],
        domain=None if domain is None else domain[keep],
        classes=classes,
        domains=domains,
        name=path.stem + (f"/{split}" if split else ""),
    )


def splits_of(path: Path) -> list[str]:
    """The names in `split`, or none."""
    known = _read(path, only=("split",))
    return sorted({str(name) for name in known["split"]}) if "split" in known else []


def _read(path: Path, only: tuple[str, ...] | None = None) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files if only is None or key in only}
    except Exception as error:
        raise ValueError(f"{path} is no .npz archive of plain arrays: {error}") from error


def _channels_first(path: Path, images: NDArray[Any]) -> Tensor:
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise ValueError(
            f"{path}: images must be uint8 of shape (n, h, w), (n, h, w, c) or (n, c, h, w), "
            f"got {images.dtype} of shape {images.shape}"
        )
    if images.ndim == 3:
        images = images[:, None]
    elif images.shape[-1] in (1, 3) and images.shape[1] not in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    if images.shape[1] not in (1, 3):
        raise ValueError(f"{path}: images have 1 or 3 channels, got shape {images.shape}")
    return torch.from_numpy(np.ascontiguousarray(images))


def _of_split(path: Path, known: dict[str, NDArray[Any]], split: str) -> Tensor:
    n = len(known["images"])
    if not split:
        return torch.arange(n)
    if "split" not in known:
        raise ValueError(f"{path} has no `split`, so there is no part {split!r}")
    names = known["split"].astype(str)
    if len(names) != n:
        raise ValueError(f"{path} has {n} images and {len(names)} entries of split")
    if not (names == split).any():
        raise ValueError(f"{path} has the splits {', '.join(sorted(set(names)))}; got {split!r}")
    return torch.from_numpy(np.flatnonzero(names == split))


def _numbered(path: Path, key: str, known: dict[str, NDArray[Any]], n: int) -> tuple[Tensor | None, list[str] | None]:
    """Numbers as they are, words as their places in sorted order."""
    if key not in known:
        return None, None
    values = known[key].reshape(-1)
    if len(values) != n:
        raise ValueError(f"{path} has {n} images and {len(values)} {key}")
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.int64)), None
    names, numbers = np.unique(values.astype(str), return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)), [str(name) for name in names]
