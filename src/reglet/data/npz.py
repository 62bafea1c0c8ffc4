"""Images as arrays: a .npz archive, or one .npy, which is mapped and may be larger than memory."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reglet.data.memory import InMemory

KEYS = "images, and where known labels, domain, split"
MOST_CHANNELS = 16
_PARTS = {("0", "1"): ("train", "test"), ("0", "1", "2"): ("train", "val", "test")}  # splits by number


def load_npz(path: Path, *, split: str = "") -> InMemory:
    """An archive with `images` (n, h, w), (n, h, w, c) or (n, c, h, w) of uint8, uint16 or floats in [0, 1] and, where
    known, `labels`, `domain` and `split`, each of length n: words, or numbers, which `classes` and `domains` may name.
    Nothing is unpickled.

    split: take only the images of this `split`; "" takes all.
    """
    known = _read(path)
    if "images" not in known:
        raise ValueError(f"{path} has {', '.join(known) or 'nothing'}; expected {KEYS}")
    images = _channels_first(path, known["images"])
    keep = _of_split(path, known, split)
    labels, classes = _numbered(path, "labels", "classes", known, len(images))
    domain, domains = _numbered(path, "domain", "domains", known, len(images))
    return InMemory(
        images[keep],
        labels=None if labels is None else labels[keep],
        domain=None if domain is None else domain[keep],
        classes=classes,
        domains=domains,
        name=path.stem + (f"/{split}" if split else ""),
    )


def load_npy(path: Path) -> InMemory:
    """One array, mapped: only the images that are asked for are read.  Labels are in NAME_labels.npy beside it, if any.

    Floating-point values must be in [0, 1].  Only the first thousand images are checked.
    """
    values = np.load(path, mmap_mode="c", allow_pickle=False)  # copy on write: torch wants memory that it may write to
    images = _channels_first(path, values)
    beside = path.with_name(f"{path.stem}_labels.npy")
    known = {"labels": np.load(beside, allow_pickle=False)} if beside.is_file() else {}
    labels, classes = _numbered(beside, "labels", "classes", known, len(images))
    info = path.stat()
    state = hashlib.sha256(f"{info.st_size} {info.st_mtime_ns} {values.shape} {values.dtype}".encode())
    state.update(np.ascontiguousarray(values[:: max(1, len(values) // 64)]).data)
    state.update(b"" if labels is None else labels.numpy().tobytes())
    return InMemory(images, labels=labels, classes=classes, name=path.stem, fingerprint=state.hexdigest()[:16])


def splits_of(path: Path) -> list[str]:
    """The names in `split`, or none.  Of numbers, 0 is train and 1 is test."""
    known = _read(path, only=("split",))
    return sorted(set(_split_names(known["split"]))) if "split" in known else []


def _split_names(values: NDArray[Any]) -> NDArray[Any]:
    names = values.astype(str)
    present = tuple(sorted(set(names.tolist())))
    if present in _PARTS:
        table = dict(zip(present, _PARTS[present], strict=True))
        return np.array([table[name] for name in names.tolist()])
    return names


def _read(path: Path, only: tuple[str, ...] | None = None) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files if only is None or key in only}
    except Exception as error:
        raise ValueError(f"{path} is no .npz archive of plain arrays: {error}") from error


def _channels_first(path: Path, images: NDArray[Any]) -> Tensor:
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise ValueError(f"{path}: images are (n, h, w), (n, h, w, c) or (n, c, h, w), got shape {images.shape}")
    _require_pixels(path, images)
    if images.ndim == 3:
        images = images[:, None]
    elif _channels_last(path, images.shape[1], images.shape[3]):
        images = images.transpose(0, 3, 1, 2)
    return torch.from_numpy(images)


def _channels_last(path: Path, second: int, last: int) -> bool:
    """Whether (n, h, w, c) and not (n, c, h, w): channels are at most 16, and 1 or 3 before all others."""
    for likely in (lambda c: c in (1, 3), lambda c: c <= MOST_CHANNELS):
        if likely(second) or likely(last):
            if likely(second) and likely(last) and not (second in (1, 3) and last in (1, 3)):
                break
            return not likely(second)
    raise ValueError(
        f"{path}: images have 1 to {MOST_CHANNELS} channels, in the second place or in the last; {second} and {last} "
        "do not tell which"
    )


def _require_pixels(path: Path, images: NDArray[Any]) -> None:
    if images.dtype in (np.uint8, np.uint16):
        return
    if images.dtype not in (np.float16, np.float32, np.float64):
        raise ValueError(f"{path}: images must be uint8, uint16 or floats in [0, 1], got {images.dtype}")
    seen = images[:1000]
    low, high = float(seen.min()), float(seen.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(f"{path}: images of {images.dtype} are in [0, 1], got values from {low:g} to {high:g}")


def _of_split(path: Path, known: dict[str, NDArray[Any]], split: str) -> Tensor | slice:
    n = len(known["images"])
    if not split:
        return slice(None)
    if "split" not in known:
        raise ValueError(f"{path} has no `split`, so there is no part {split!r}")
    names = _split_names(known["split"])
    if len(names) != n:
        raise ValueError(f"{path} has {n} images and {len(names)} entries of split")
    if not (names == split).any():
        raise ValueError(f"{path} has the splits {', '.join(sorted(set(names)))}; got {split!r}")
    return torch.from_numpy(np.flatnonzero(names == split))


def _numbered(
    path: Path, key: str, names_key: str, known: dict[str, NDArray[Any]], n: int
) -> tuple[Tensor | None, list[str] | None]:
    """Numbers as they are, words as their places in sorted order."""
    if key not in known:
        return None, None
    values = known[key].reshape(-1)
    if len(values) != n:
        raise ValueError(f"{path} has {n} images and {len(values)} {key}")
    if values.dtype.kind in "iu":
        names = [str(name) for name in known[names_key]] if names_key in known else None
        return torch.from_numpy(values.astype(np.int64)), names
    every, numbers = np.unique(values.astype(str), return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)), [str(name) for name in every]
