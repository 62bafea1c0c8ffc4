"""Each operation is torchvision v2's functional one, image by image, for the same parameters.

Pixels lie in [0, 1].  5e-6 is what float32 leaves of sums of a few dozen products whose weights come from a division;
a wrong filter, order, sign or border is off by 1e-2 and more.
"""

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from reglet import views

TOLERANCE = 5e-6


def same(ours: Tensor, theirs: list[Tensor], atol: float = TOLERANCE) -> None:
    torch.testing.assert_close(ours, torch.stack(theirs), atol=atol, rtol=0)


def images(n: int = 6, c: int = 3, h: int = 19, w: int = 24) -> Tensor:
    """With black, white, grey and saturated pixels among them, where formulas for colours divide by zero."""
    x = torch.rand(n, c, h, w, generator=torch.Generator().manual_seed(1))
    x[:, :, 0, :5] = 0.0
    x[:, :, 1, :5] = 1.0
    x[:, :, 2, :5] = 0.5
    x[:, 0, 3, :5], x[:, 1:, 3, :5] = 1.0, 0.0
    x[:, 0, 4, :5], x[:, 1:, 4, :5] = 0.0, 1.0
    return x


BOXES = torch.tensor([[0, 0, 19, 24], [2, 3, 1, 1], [5, 0, 14, 9], [0, 7, 3, 17], [4, 4, 12, 12], [10, 23, 9, 1]])


@pytest.mark.parametrize("size", [5, 12, 40])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resized_crop(v2: ModuleType, mode: Literal["bilinear", "bicubic"], size: int) -> None:
    x = images()
    ours = views.resized_crop(x, BOXES, size=size, interpolation=mode)
    interpolation = v2.InterpolationMode(mode)
    theirs = [
        v2.functional.resized_crop(a, *box, size=[size, size], interpolation=interpolation, antialias=True)
        for a, box in zip(x, BOXES.tolist(), strict=True)
    ]
    same(ours, theirs)


@pytest.mark.parametrize("size", [5, 12, 40])
def test_lanczos_is_that_of_pillow(size: int) -> None:
    """torchvision has it for Pillow's images only."""
    x = images()
    ours = views.resized_crop(x, BOXES, size=size, interpolation="lanczos")
    for image, (i, j, h, w), got in zip(x, BOXES.tolist(), ours, strict=True):
        for channel, found in zip(image[:, i : i + h, j : j + w], got, strict=True):
            pixels = Image.fromarray(channel.numpy().astype(np.float32)).resize((size, size), Image.Resampling.LANCZOS)
            torch.testing.assert_close(found.float(), torch.from_numpy(np.array(pixels)), atol=1e-5, rtol=1e-5)


def test_resized_crop_of_bytes_differs_by_the_rounding_only(v2: ModuleType) -> None:
    x = (images() * 255).round().byte()
    ours = views.resized_crop(x, BOXES, size=12)
    theirs = [
        v2.functional.resized_crop(a, *box, size=[12, 12], antialias=True) / 255
        for a, box in zip(x, BOXES.tolist(), strict=True)
    ]
    same(ours, theirs, atol=1.01 / 255)  # torchvision rounds after each of two directions
    assert (ours - torch.stack(theirs)).abs().max() > 0.25 / 255


def test_a_flip_costs_nothing(v2: ModuleType) -> None:
    x, flip = images(), torch.tensor([True, False, True, True, False, False])
    ours = views.resized_crop(x, BOXES, size=12, flip=flip)
    plain = views.resized_crop(x, BOXES, size=12)
    torch.testing.assert_close(ours, views.hflip(plain, flip), atol=TOLERANCE, rtol=0)
    expected = [v2.functional.horizontal_flip(a) if f else a for a, f in zip(x, flip, strict=True)]
    assert torch.equal(views.hflip(x, flip), torch.stack(expected))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("ours", "name", "factors"),
    [
        (views.adjust_brightness, "adjust_brightness", [0.0, 0.6, 1.0, 1.4, 3.0, 0.9]),
        (views.adjust_contrast, "adjust_contrast", [0.0, 0.6, 1.0, 1.4, 3.0, 0.9]),
        (views.adjust_saturation, "adjust_saturation", [0.0, 0.6, 1.0, 1.4, 3.0, 0.9]),
        (views.adjust_hue, "adjust_hue", [0.0, -0.5, 0.5, 0.1, -0.07, 0.34]),
    ],
)
def test_colours(
    v2: ModuleType, ours: Callable[[Tensor, Tensor], Tensor], name: str, factors: list[float], channels: int
) -> None:
    x = images(c=channels)
    theirs = getattr(v2.functional, name)
    same(ours(x, torch.tensor(factors)), [theirs(a, f) for a, f in zip(x, factors, strict=True)])


def test_jitter_in_all_24_orders(v2: ModuleType) -> None:
    orders = torch.tensor(list(itertools.permutations(range(4))))
    x = images(n=24)
    _, factors, _ = views.ColorJitter(hue=0.3).draw(24, torch.Generator().manual_seed(2))
    names = ("brightness", "contrast", "saturation", "hue")
    theirs = []
    for a, row, order in zip(x, factors.tolist(), orders.tolist(), strict=True):
        for k in order:
            a = getattr(v2.functional, f"adjust_{names[k]}")(a, row[k])
        theirs.append(a)
    same(views.color_jitter(x, factors, orders), theirs)
    assert not torch.allclose(views.color_jitter(x, factors, orders), views.color_jitter(x, factors, orders.flip(1)))


def test_jitter_of_bytes_differs_by_the_rounding_only(v2: ModuleType) -> None:
    x = (images() * 255).round().byte()
    _, factors, order = views.ColorJitter(hue=0.0).draw(6, torch.Generator().manual_seed(2))
    names = ("brightness", "contrast", "saturation", "hue")
    theirs = []
    for a, row, steps in zip(x, factors.tolist(), order.tolist(), strict=True):
        for k in steps:
            a = getattr(v2.functional, f"adjust_{names[k]}")(a, row[k])
        theirs.append(a / 255)
    # torchvision rounds down after each of three steps, and a later step multiplies by up to 1.4 what was lost before.
    same(views.color_jitter(x / 255, factors, order), theirs, atol=5 / 255)


def test_grayscale_and_solarize(v2: ModuleType) -> None:
    x = images()
    same(views.rgb_to_grayscale(x), [v2.functional.rgb_to_grayscale(a) for a in x])
    assert torch.equal(views.solarize(x, threshold=0.3), v2.functional.solarize(x, 0.3))
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal((views.solarize(every / 255) * 255).round().byte(), v2.functional.solarize(every, 128))


@pytest.mark.parametrize(("kernel", "size"), [(1, 0), (3, 0), (9, 0), (23, 0), (9, 160), (23, 160)])
def test_blur(v2: ModuleType, kernel: int, size: int) -> None:
    """On a CPU large images are blurred in tiles."""
    x, sigma = images(h=size, w=size + 32) if size else images(), torch.tensor([0.1, 0.5, 1.0, 2.0, 5.0, 0.3])
    theirs = [v2.functional.gaussian_blur(a, [kernel, kernel], [s, s]) for a, s in zip(x, sigma.tolist(), strict=True)]
    same(views.gaussian_blur(x, sigma, kernel=kernel), theirs)


@pytest.mark.parametrize("size", [(19, 24), (16, 16)])
def test_rotate(v2: ModuleType, size: tuple[int, int]) -> None:
    x, degrees = images(h=size[0], w=size[1]), torch.tensor([0.0, 10.0, -37.5, 120.0, 180.0, 359.0])
    bilinear = v2.InterpolationMode.BILINEAR
    plain = [v2.functional.rotate(a, d, interpolation=bilinear) for a, d in zip(x, degrees.tolist(), strict=True)]
    # Positions are rounded to 1e-7 of the frame, several 1e-6 px, and neighbouring pixels differ by up to 1.
    same(views.rotate(x, degrees), plain, atol=2e-5)
    filled = [
        v2.functional.rotate(a, d, interpolation=bilinear, fill=[0.7]) for a, d in zip(x, degrees.tolist(), strict=True)
    ]
    # Where frame and fill are mixed torchvision weighs the frame twice, so the rim is left out.
    share = views.rotate(torch.ones_like(x), degrees)
    rim = (share > 1e-4) & (share < 1 - 1e-4)
    assert 0 < rim.float().mean() < 0.3
    torch.testing.assert_close(views.rotate(x, degrees, fill=0.7)[~rim], torch.stack(filled)[~rim], atol=2e-4, rtol=0)
    constant = torch.full_like(x, 0.7)
    torch.testing.assert_close(views.rotate(constant, degrees, fill=0.7), constant)


def test_quarter_turns(v2: ModuleType) -> None:
    x, turns = images(h=16, w=16), torch.tensor([0, 1, 2, 3, -1, 5])
    theirs = [v2.functional.rotate(a, 90.0 * k) for a, k in zip(x, turns.tolist(), strict=True)]
    assert torch.equal(views.quarter_turn(x, turns), torch.stack(theirs))


def test_normalize(v2: ModuleType) -> None:
    x = images()
    ours = views.Normalize()(x)
    theirs = v2.functional.normalize(x, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    torch.testing.assert_close(ours, theirs, atol=5e-6, rtol=0)
