"""Data sets of torchvision, by name.  Each image is read from the library when it is needed."""

import hashlib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reglet.data.decode import open_file
from reglet.data.files import Known
from reglet.data.index_file import cache_folder

LABELS = ("targets", "labels", "_labels")  # as the library's sets call them
NAMES = {  # what a part may be called
    "train": ("train", "trainval", "train-standard"),
    "test": ("test", "val", "valid", "validation"),
}


class TorchvisionFiles:
    """One part of a set.  If the set has files in folders, the files are read; otherwise the library's images."""

    lengths = None

    def __init__(self, found: Any, *, name: str) -> None:
        from torchvision.datasets import DatasetFolder

        if isinstance(found, DatasetFolder):
            found.loader = open_file
        self.found, self.name = found, name
        labels = _labels(found)
        self.known = Known() if labels is None else Known(labels, _classes(found, labels))
        state = hashlib.sha256(f"{name} {len(found)}".encode())
        state.update(b"" if labels is None else labels.numpy().tobytes())
        for i in range(0, len(found), max(1, len(found) // 16)):
            state.update(_bytes(self.open(i)))
        self.fingerprint = state.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.found)

    def file_name(self, i: int) -> str:
        return f"{i:08}"

    def open(self, i: int) -> Any:
        from PIL import Image

        image = self.found[i][0]
        if not isinstance(image, Image.Image) and not hasattr(image, "read"):
            raise TypeError(f"expected a Pillow image of torchvision's {self.name}, got {type(image).__name__}")
        return image


def open_torchvision(name: str) -> dict[str, Any]:
    """Part -> data: "train" and "test", or "" where the set has no parts.

    name: CIFAR10, STL10, SVHN, Flowers102, ..., which is downloaded once to the cache; or FOLDER/CIFAR10, where FOLDER
    is the library's `root`.
    """
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError) as error:
        raise ImportError(f"torchvision/{name} needs torchvision, built for this torch: {error}") from error
    folder, _, kind = name.rpartition("/")
    if not hasattr(datasets, kind):
        close = ", ".join(get_close_matches(kind, dir(datasets), n=3)) or "none of a similar name"
        raise ValueError(f"torchvision has no data set {kind!r}. It has {close}")
    cls, root = getattr(datasets, kind), Path(folder) if folder else cache_folder() / "torchvision"
    parts = {part: made for part, names in NAMES.items() if (made := _construct(cls, names, root)) is not None}
    if "train" in parts:
        return parts
    whole = _tried(cls, root)
    if whole is None:
        raise ValueError(f"torchvision's {kind} cannot be made from a folder and a part alone")
    return {"": whole}


def _construct(cls: Any, names: tuple[str, ...], root: Path) -> Any:
    """The part of one of these names, or None.  Some sets say split="train", others train=True."""
    for name in names:
        if (made := _tried(cls, root, split=name)) is not None:
            return made
    return _tried(cls, root, train="train" in names)


def _tried(cls: Any, root: Path, **which: Any) -> Any:
    """The set, or None if it has no such argument or no such part.  Some sets can download, others cannot."""
    for more in ({"download": True}, {}):
        try:
            return cls(root=str(root), **which, **more)
        except TypeError:  # no such argument
            continue
        except ValueError as error:
            if "Unknown value" in str(error):
                return None
            raise
        except Exception as error:  # no network, a server that refuses, files that are not whole
            raise ValueError(
                f"torchvision's {cls.__name__} is not in {root}, and could not be brought there "
                f"({type(error).__name__}: {error}). Without a network: put its files there, as the library has them, "
                f"or write data=torchvision/FOLDER/{cls.__name__}, where FOLDER is the library's root"
            ) from error
    return None


def _classes(found: Any, labels: torch.Tensor) -> list[str]:
    """The names of the classes in the set (several words each for ImageNet); otherwise numbers."""
    known = getattr(found, "classes", None) or range(int(labels.max()) + 1)
    return [", ".join(c) if isinstance(c, tuple) else str(c) for c in known]


def _labels(found: Any) -> torch.Tensor | None:
    """One number for each image; None if the set has something else, such as boxes."""
    for name in LABELS:
        values = getattr(found, name, None)
        if values is not None and len(values) == len(found):
            return _numbers(values)
    if len(samples := getattr(found, "_samples", ())) == len(found):
        return _numbers([sample[1] for sample in samples])
    return _numbers([found[i][1] for i in range(len(found))])  # decodes every image, once


def _numbers(values: Any) -> torch.Tensor | None:
    try:
        numbers = np.asarray(values)
    except ValueError:  # of different shapes
        return None
    fine = numbers.ndim == 1 and numbers.dtype.kind in "iu" and numbers.min() >= 0
    return torch.from_numpy(numbers.astype(np.int64)) if fine else None


def _bytes(image: Any) -> bytes:
    if hasattr(image, "tobytes"):
        return bytes(image.tobytes())
    with image:
        return bytes(image.read())
