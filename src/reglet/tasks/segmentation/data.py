"""Images with a class number at every pixel: what they are in memory, what is refused, and curves that are made."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

IGNORE = 255  # in a mask: a pixel that counts neither in training nor in testing
EVERY = 5  # where no split is given, every fifth image is tested on


class MaskedImages(NamedTuple):
    """Images may differ in size, each mask is of the size of its image.  Class 0 is the background."""

    images: Sequence[UInt8[Tensor, "c _ _"]]
    masks: Sequence[UInt8[Tensor, "_ _"]]
    train: list[int]  # which of them
    test: list[int]
    domain: list[str]  # of each image
    trained_on: list[str]  # the domains
    classes: int


class Raw(NamedTuple):
    """What was read.  Where it is not None, a list has an entry for every image."""

    images: Sequence[UInt8[Tensor, "c _ _"]]
    masks: Sequence[UInt8[Tensor, "_ _"]]
    fov: Sequence[UInt8[Tensor, "_ _"]] | None = None  # 0: outside
    split: Sequence[str] | None = None  # train or test
    domain: Sequence[str] | None = None


def prepare(raw: Raw, *, threshold: int, crop: int, train_on: str) -> MaskedImages:
    """Masks as class numbers, the images divided, and all that can be wrong said before training."""
    masks = as_classes(raw.masks, threshold=threshold)
    if raw.fov is not None:
        masks = [mask.masked_fill(fov == 0, IGNORE) for mask, fov in zip(masks, raw.fov, strict=True)]
    n = len(raw.images)
    domain = ["all"] * n if raw.domain is None else list(raw.domain)
    wanted = [name.strip() for name in train_on.split(",")] if train_on else sorted(set(domain))
    unknown = [name for name in wanted if name not in domain]
    if unknown:
        raise ValueError(f"train_on names {', '.join(unknown)}; the domains are {', '.join(sorted(set(domain)))}")
    held = [i % EVERY == EVERY - 1 for i in range(n)] if raw.split is None else [part == "test" for part in raw.split]
    train = [i for i in range(n) if not held[i] and domain[i] in wanted]
    test = [i for i in range(n) if held[i]]
    _check(raw.images, [masks[i] for i in train], crop=crop)
    classes = 1 + max(_largest(masks[i]) for i in train)
    _check_test({name: [masks[i] for i in test if domain[i] == name] for name in sorted(set(domain))}, wanted, classes)
    return MaskedImages(raw.images, masks, train, test, domain, wanted, classes)


def as_classes(masks: Sequence[UInt8[Tensor, "_ _"]], *, threshold: int) -> list[UInt8[Tensor, "_ _"]]:
    """Class numbers from 0, IGNORE where the pixel does not count.

    threshold: what is above is 1, what is not is 0.  -1: masks of nothing but 0 and 255 are 0 and 1, all others are
    class numbers already, in which 255 is IGNORE.
    """
    if threshold >= 0:
        return [(mask > threshold).to(torch.uint8) for mask in masks]
    if all(bool(((mask == 0) | (mask == 255)).all()) for mask in masks):
        return [(mask > 0).to(torch.uint8) for mask in masks]
    counts = torch.stack([mask.flatten().long().bincount(minlength=256) for mask in masks]).sum(0)
    present = counts[:IGNORE].nonzero().flatten().tolist()
    if 4 * len(present) <= present[-1]:
        raise ValueError(
            f"masks have {len(present)} different values up to {present[-1]}: no numbering of classes. If they tell "
            "how much of a pixel is foreground, say threshold=127"
        )
    return list(masks)


def check_size(image: Tensor, mask: Tensor, *, what: str) -> None:
    if image.shape[1:] != mask.shape:
        h, w = image.shape[1:]
        raise ValueError(f"{what} is of {' x '.join(map(str, mask.shape))} pixels, its image of {h} x {w}")


def _check(images: Sequence[Tensor], masks: Sequence[Tensor], *, crop: int) -> None:
    if not masks:
        raise ValueError(f"none of {len(images)} images is left to train on")
    small = min(min(image.shape[1:]) for image in images)
    if small < crop:
        raise ValueError(f"a crop of {crop} x {crop} does not fit into an image whose shorter side is {small}")
    if any(bool((mask == IGNORE).all()) for mask in masks):
        raise ValueError("a training mask has no pixel that counts: all are outside the field of view, or 255")
    if not any(_largest(mask) for mask in masks):
        raise ValueError("every pixel of the training masks is background")


def _check_test(by_domain: dict[str, list[Tensor]], wanted: Sequence[str], classes: int) -> None:
    for name, masks in by_domain.items():
        of = f" of {name}" if len(by_domain) > 1 else ""
        largest = max((_largest(mask) for mask in masks), default=0)
        if name in wanted and not masks:
            raise ValueError(f"there is no test image{of}")
        if masks and not largest:
            raise ValueError(f"every pixel of the test masks{of} is background: there is nothing to score")
        if largest >= classes:
            raise ValueError(f"test masks{of} have classes up to {largest}, training masks up to {classes - 1}")


def _largest(mask: Tensor) -> int:
    return int(mask.masked_fill(mask == IGNORE, 0).max())


def curves(n: int = 24, *, size: int = 96, seed: int = 0) -> Raw:
    """Each image has three thin dark waves, 4 px thick, under noise; the last quarter is for testing."""
    generator = torch.Generator().manual_seed(seed)
    images, masks = zip(*(_one(size, generator) for _ in range(n)), strict=True)
    return Raw(images, masks, split=["train" if 4 * i < 3 * n else "test" for i in range(n)])


def _one(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    axis = torch.arange(size) / size
    amplitude, waves, phase, height, turn = torch.rand(5, 3, 1, 1, generator=generator)
    x, y = torch.where(turn < 0.5, axis[None], axis[:, None]), torch.where(turn < 0.5, axis[:, None], axis[None])
    middle = 0.15 + 0.7 * height + 0.15 * amplitude * (2 * math.pi * (1 + 2 * waves) * (x + phase)).sin()
    ink = ((y - middle).abs() < 2 / size).any(0)
    ground = F.interpolate(torch.rand(1, 3, 8, 8, generator=generator), size=(size, size), mode="bilinear")[0]
    image = 0.4 + 0.4 * ground - 0.25 * ink + 0.08 * torch.randn(3, size, size, generator=generator)
    return (255 * image.clamp(0, 1)).to(torch.uint8), ink.to(torch.uint8)
