"""Pillow's pixels without a copy: the same pixels, the same crops, and memory that lives as long as it is seen."""

import gc

import numpy as np
import pytest
import torch
from PIL import Image

from reglet.data.decode import Box, cut_bytes
from reglet.data.pillow_memory import shared_array, with_fourth_byte


def drawn(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_the_pixels_are_those_of_numpy(mode: str) -> None:
    image = drawn(37, 53).convert(mode)
    assert np.array_equal(shared_array(image), np.array(image).reshape(37, 53, -1))


def test_rgb_is_not_copied_if_pillow_can_share_it() -> None:
    if not hasattr(Image.Image, "__arrow_c_array__"):
        pytest.skip("this Pillow does not share its memory")
    image = drawn(37, 53)
    shared = shared_array(image)
    assert with_fourth_byte(shared[3:9, 4:8]).shape == (6, 4, 4)
    image.putpixel((5, 2), (1, 2, 3))
    assert shared[2, 5].tolist() == [1, 2, 3]


def test_an_image_in_several_blocks_is_copied() -> None:
    large = Image.new("RGB", (3000, 2000), (9, 8, 7))  # above Pillow's 16 MB
    assert shared_array(large)[1999, 2999].tolist() == [9, 8, 7]


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
@pytest.mark.parametrize("box", [Box(0, 0, 97, 131), Box(11, 20, 60, 40), Box(1, 2, 32, 32), Box(60, 90, 20, 41)])
def test_crops_are_the_same_to_the_bit(how: str, box: Box) -> None:
    image = drawn(97, 131)
    shared, copied = (cut_bytes(x, box, out=(32, 32), how=how) for x in (shared_array(image), np.array(image)))
    assert shared.shape == (3, 32, 32)
    assert torch.equal(shared, copied)


def test_the_memory_outlives_the_image() -> None:
    image = drawn(64, 64)
    expected = np.array(image)
    seen = cut_bytes(shared_array(image), Box(0, 0, 64, 64), out=(64, 64), how="bilinear")  # not resized: no copy
    del image
    gc.collect()
    others = [drawn(64, 64).point(lambda value: 255 - value) for _ in range(20)]  # would take the memory
    assert torch.equal(seen, torch.from_numpy(expected).permute(2, 0, 1))
    assert len(others) == 20
