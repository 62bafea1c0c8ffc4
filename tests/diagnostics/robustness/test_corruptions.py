"""Corruptions: deterministic by image, of the strength they say, at any size."""

import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from reglet.diagnostics.robustness import CORRUPTIONS, SEVERITIES, corrupt
from reglet.diagnostics.robustness.digital import jpeg_quality
from reglet.diagnostics.robustness.draws import Draws
from reglet.diagnostics.robustness.weather import brighter

FIXED = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")  # nothing is drawn
SHIFTS = ("defocus_blur", "glass_blur", "motion_blur", "elastic_transform", "pixelate")  # only move pixels about


def pictures(n: int = 6, h: int = 32, w: int = 32, c: int = 3) -> Tensor:
    """Smooth colours with some detail."""
    generator = torch.Generator().manual_seed(0)
    coarse = F.interpolate(torch.rand(n, c, 4, 4, generator=generator), size=(h, w), mode="bilinear")
    return (0.7 * coarse + 0.3 * torch.rand(n, c, h, w, generator=generator)).clamp(0, 1)


def grey(value: float, side: int = 224, n: int = 2) -> Tensor:
    return torch.full((n, 3, side, side), value)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_gets_the_same_corruption_whatever_its_batch(name: str) -> None:
    x = pictures()
    whole = corrupt(x, name, severity=3, seed=5)
    some = torch.tensor([4, 1])
    torch.testing.assert_close(corrupt(x[some], name, severity=3, seed=5, index=some), whole[some], rtol=0, atol=1e-5)
    other = corrupt(x, name, severity=3, seed=6)
    if name in FIXED:
        assert torch.equal(other, whole)
    else:
        assert (other - whole).abs().amax((1, 2, 3)).min() > 1e-3  # every image has another draw
        same = corrupt(x[:1].expand(3, -1, -1, -1), name, severity=3)
        assert (same[0] - same[1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(8, 8), (24, 40), (64, 64), (224, 224)])
def test_any_size(name: str, shape: tuple[int, int]) -> None:
    for c in (1, 3):
        x = pictures(2, *shape, c=c)
        y = corrupt(x, name, severity=5)
        assert y.shape == x.shape
        assert y.isfinite().all()
        assert 0 <= float(y.min()) <= float(y.max()) <= 1
        assert (y - x).abs().max() > 0.02


def unlike(x: Tensor, y: Tensor) -> float:
    """1 - correlation: light and contrast, which frost and fog change too, do not count."""
    a, b = (F.normalize((z - z.mean((1, 2, 3), keepdim=True)).flatten(1), dim=1) for z in (x, y))
    return float(1 - (a * b).sum(1).mean())


def apart(x: Tensor, y: Tensor) -> float:
    return float((x - y).square().mean().sqrt())


@pytest.mark.parametrize("side", [32, 96])
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name != "fog"])  # which has a test of its own
def test_severities_rise(name: str, side: int) -> None:
    x = pictures(16, side, side)
    how = apart if name in ("brightness", "contrast") else unlike
    one, two, three, four, five = (how(x, corrupt(x, name, severity=s)) for s in SEVERITIES)
    if name == "elastic_transform":  # ImageNet-C's: two severities of large maps, then three of small wobbles
        assert one < two
        assert three < four < five
    elif name in ("glass_blur", "snow"):  # their thirds: repeated thrice, the fourth twice; fewer flakes, but larger
        assert one < two < four < five
    else:
        assert one < two < three < four < five
    assert one > 1e-3


@pytest.mark.parametrize("side", [224, 56])
def test_noise_has_the_deviation_it_says(side: int) -> None:
    x, s = grey(0.5, side, n=8), side / 224
    for severity, std in ((1, 0.08), (2, 0.12)):
        noise = corrupt(x, "gaussian_noise", severity=severity) - x
        assert float(noise.std()) == pytest.approx(std * math.sqrt(s), rel=0.02)
        assert float(noise.mean()) == pytest.approx(0, abs=2e-3)
    shot = corrupt(x, "shot_noise", severity=1) - x
    assert float(shot.std()) == pytest.approx(math.sqrt(0.5 / 60 * s), rel=0.02)
    assert float(shot.mean()) == pytest.approx(0, abs=2e-3)
    impulse = corrupt(x, "impulse_noise", severity=3)
    assert float((impulse == 0).double().mean()) == pytest.approx(0.045 * math.sqrt(s), rel=0.05)
    assert float((impulse == 1).double().mean()) == pytest.approx(0.045 * math.sqrt(s), rel=0.05)
    assert set(impulse.unique().tolist()) == {0.0, 0.5, 1.0}


@pytest.mark.parametrize("name", SHIFTS)
def test_what_moves_pixels_leaves_a_plain_image_plain(name: str) -> None:
    for side in (32, 224):
        torch.testing.assert_close(corrupt(grey(0.3, side), name, severity=4), grey(0.3, side), rtol=0, atol=1e-4)


def test_contrast_and_brightness_are_exact() -> None:
    x = 0.25 + pictures() / 4
    y = corrupt(x, "contrast", severity=2)
    torch.testing.assert_close(y.mean((2, 3)), x.mean((2, 3)))
    torch.testing.assert_close(y.std((2, 3)), 0.3 * x.std((2, 3)))
    y = corrupt(x, "brightness", severity=1)
    torch.testing.assert_close(y.amax(1), x.amax(1) + 0.1)
    torch.testing.assert_close(y.amin(1) / y.amax(1), x.amin(1) / x.amax(1))  # saturation is kept
    assert torch.equal(corrupt(torch.zeros(1, 3, 8, 8), "brightness", severity=5), torch.full((1, 3, 8, 8), 0.5))
    assert torch.equal(brighter(torch.full((1, 3, 1, 1), 0.2), -0.5), torch.zeros(1, 3, 1, 1))


def test_pixelation_makes_blocks() -> None:
    x = pictures(2, 224, 224)
    y = corrupt(x, "pixelate", severity=5)  # 56 blocks of 4 px
    blocks = F.avg_pool2d(x, 4)
    torch.testing.assert_close(y, blocks.repeat_interleave(4, 2).repeat_interleave(4, 3))
    small = corrupt(pictures(1, 32, 32), "pixelate", severity=5)[0, 0]
    line = torch.linalg.matrix_rank(small.double(), atol=1e-4)
    assert int(line) == 22  # 32 / (1 + 3/7) blocks, whatever the pixels on their borders


def test_jpeg_is_pillows_at_the_published_quality() -> None:
    x = pictures(1, 224, 224)
    file = io.BytesIO()
    pixels = (x[0] * 255).round().byte().permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(file, "JPEG", quality=15)
    theirs = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1).float() / 255
    assert torch.equal(corrupt(x, "jpeg_compression", severity=3)[0], theirs)
    assert [jpeg_quality(q, math.sqrt(1 / 7)) for q in (25, 7)] == [62, 19]
    assert jpeg_quality(1, 1.0) == 1


def test_fog_adds_no_light_and_dims_the_picture() -> None:
    x = pictures(8)
    other = x.clone()
    other[:, :, :8] = x[:, :, :8].flip(3)  # the same brightest pixel, another picture
    most = x.amax((1, 2, 3), keepdim=True)
    for severity, thick in zip(SEVERITIES, (1.5, 2.0, 2.5, 2.5, 3.0), strict=True):
        a, b = (corrupt(z, "fog", severity=severity) for z in (x, other))
        assert (a.amax((1, 2, 3)) <= most.flatten() + 1e-6).all()
        torch.testing.assert_close(a - b, (x - other) * most / (most + thick))


def test_the_published_lengths_shrink_with_the_image() -> None:
    """A picture and its enlargement are blurred alike: the blur of 224 px, made small, is that of 56 px."""
    small = F.interpolate(
        torch.rand(4, 3, 7, 7, generator=torch.Generator().manual_seed(0)), size=(56, 56), mode="bicubic"
    )
    small = small.clamp(0, 1)
    large = F.interpolate(small, size=(224, 224), mode="bilinear").clamp(0, 1)
    for name in ("defocus_blur", "motion_blur", "zoom_blur"):
        a, b = corrupt(small, name, severity=5), F.avg_pool2d(corrupt(large, name, severity=5), 4)
        inside = (..., slice(12, -12), slice(12, -12))  # borders are reflected at another place
        change, differ = (b - small)[inside].square().mean(), (a - b)[inside].square().mean()
        assert differ < 0.05 * change, name


def test_draws_are_a_function_of_seed_name_and_index() -> None:
    def first(seed: int, name: str, index: int) -> float:
        return float(Draws([index], seed=seed, name=name).normal(1))

    values = {first(s, n, i) for s in (0, 1) for n in ("a", "b") for i in (0, 1, 2**40)}
    assert len(values) == 12
    draws = Draws([7, 8], seed=0, name="a")
    a, b = draws.uniform(2.0, 3.0, 4), draws.uniform(2.0, 3.0, 4)
    assert not torch.equal(a, b)  # it goes on
    assert 2 <= float(a.min()) <= float(a.max()) <= 3


def test_bad_input_says_so() -> None:
    x = pictures(2)
    with pytest.raises(ValueError, match=r"no corruption 'snows'. Did you mean 'snow'"):
        corrupt(x, "snows", severity=1)
    with pytest.raises(ValueError, match="severity is 1, 2, 3, 4 or 5, got 0"):
        corrupt(x, "snow", severity=0)
    with pytest.raises(ValueError, match="before normalisation; got -"):
        corrupt(x - 1, "snow", severity=1)
    with pytest.raises(TypeError, match=r"got torch.int64"):
        corrupt((x * 9).long(), "snow", severity=1)
    with pytest.raises(ValueError, match=r"8 px or more, got \(2, 3, 4, 4\)"):
        corrupt(x[:, :, :4, :4], "snow", severity=1)
    assert torch.equal(corrupt((x * 255).byte(), "fog", severity=1), corrupt((x * 255).byte() / 255, "fog", severity=1))
