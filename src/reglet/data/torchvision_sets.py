"""Data sets of torchvision, by name: each image is asked of the library when it is needed."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reglet.data.files import Known

LABELS = ("targets", "labels", "_labels", "attr")  # as the library's sets call them


class TorchvisionFiles:
    def __init__(self, found: Sequence[Any], *, name: str) -> None:
        self.found, self.name = found, name
        labels = _labels(found)
        classes = getattr(found, "classes", None)
        names = [str(c) for c in classes] if classes else [str(i) for i in range(int(labels.max()) + 1)]
        self.known = Known(labels, names)
        state = hashlib.sha256(f"{name} {len(found)}".encode())
        state.update(labels.numpy().tobytes())
        for i in range(0, len(found), max(1, len(found) // 16)):
            state.update(self.open(i).tobytes())
        self.fingerprint = state.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.found)

    def file_name(self, i: int) -> str:
        return f"{i:08}"

    def open(self, i: int) -> Any:
        from PIL import Image

        image = self.found[i][0]
        if not isinstance(image, Image.Image):
            raise TypeError(f"expected a Pillow image of torchvision's {self.name}, got {type(image).__name__}")
        return image

    def length(self, i: int) -> int:
        return 0


def open_torchvision(name: str, *, split: str, root: Path | None = None) -> TorchvisionFiles:
    """CIFAR10, STL10, SVHN, Flowers102, ...; downloaded once to `root`, or to the cache."""
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError) as error:
        raise ImportError(f"torchvision/{name} needs torchvision, built for this torch: {error}") from error
    if not hasattr(datasets, name):
        from difflib import get_close_matches

        close = ", ".join(get_close_matches(name, dir(datasets), n=3)) or "none of a similar name"
        raise ValueError(f"torchvision has no data set {name!r}. It has {close}")
    from reglet.data.walk import cache_folder

    found = _construct(getattr(datasets, name), split or "train", root or cache_folder())
    return TorchvisionFiles(found, name=f"{name}/{split or 'train'}")


def _construct(cls: Any, split: str, root: Path) -> Sequence[Any]:
    """Some say train=True, others split="train"; some can download, others cannot."""
    options: tuple[dict[str, Any], ...] = ({"split": split}, {"train": split == "train"})
    for which in options:
        for more in ({"download": True}, {}):
            try:
                made: Sequence[Any] = cls(root=str(root), **which, **more)
                return made
            except TypeError:
                continue
    raise ValueError(f"torchvision's {cls.__name__} cannot be made from a folder and a split alone")


def _labels(found: Sequence[Any]) -> torch.Tensor:
    for name in LABELS:
        values = getattr(found, name, None)
        if values is not None and len(values) == len(found):
            numbers = np.asarray(values)
            if numbers.ndim == 1 and numbers.dtype.kind in "iu":
                return torch.from_numpy(numbers.astype(np.int64))
    return torch.tensor([int(found[i][1]) for i in range(len(found))])
