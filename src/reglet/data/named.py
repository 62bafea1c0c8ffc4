"""Data sets of Hugging Face and torchvision by name, where those libraries are installed."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reglet.data.memory import InMemory


def load_hf(name: str, *, split: str, size: int) -> InMemory:
    """ "hf/NAME": a data set with a column of images, named image or img, and a label."""
    try:
        from datasets import load_dataset  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError(f"hf/{name} needs Hugging Face's library: pip install datasets") from error
    found = load_dataset(name, split=split or "train")
    columns = found.features
    image = next((c for c in ("image", "img") if c in columns), None)
    if image is None:
        raise ValueError(f"hf/{name} has the columns {', '.join(columns)}; expected image or img")
    label = next((c for c in ("label", "labels", "fine_label") if c in columns), None)
    labels = None if label is None else torch.tensor(found[label])
    classes = getattr(columns[label], "names", None) if label else None
    return InMemory(_stack(found[image], size=size), labels=labels, classes=classes, name=f"{name}/{split or 'train'}")


def load_torchvision(name: str, *, split: str, size: int, root: Path | None = None) -> InMemory:
    """ "torchvision/NAME": CIFAR10, STL10, SVHN, Flowers102, ...; downloaded once to `root`."""
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError) as error:
        raise ImportError(f"torchvision/{name} needs torchvision, built for this torch: {error}") from error
    if not hasattr(datasets, name):
        from difflib import get_close_matches

        close = ", ".join(get_close_matches(name, dir(datasets), n=3)) or "none of a similar name"
        raise ValueError(f"torchvision has no data set {name!r}. It has {close}")
    found = _construct(getattr(datasets, name), split or "train", root or Path.home() / ".cache" / "reglet")
    pairs = [found[i] for i in range(len(found))]
    labels = torch.tensor([int(label) for _, label in pairs])
    classes = getattr(found, "classes", None)
    return InMemory(
        _stack((image for image, _ in pairs), size=size),
        labels=labels,
        classes=classes,
        name=f"{name}/{split or 'train'}",
    )


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


def _stack(images: Iterable[Any], *, size: int) -> Tensor:
    """PIL images as one tensor; of different sizes only where a size is given."""
    from PIL import Image, ImageOps

    def fitted(image: Image.Image) -> NDArray[Any]:
        image = image.convert("RGB")
        side = size or min(image.size)
        if image.size != (side, side):
            image = ImageOps.fit(image, (side, side), method=Image.Resampling.BICUBIC)
        return np.array(image)

    with ThreadPoolExecutor() as pool:
        arrays = list(pool.map(fitted, images))
    sizes = sorted({array.shape[0] for array in arrays})
    if len(sizes) > 1:
        raise ValueError(
            f"images have sides from {sizes[0]} to {sizes[-1]} px: say to which size= they shall be brought"
        )
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()
