import numpy as np
import pytest
import torch
from scipy import stats

from reglet.latent import Cut, CutMix
from reglet.latent.cutmix import box, kept_area
from reglet.types import Transform


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pasted(p: Cut, height: int, width: int) -> np.ndarray:
    """Pixel by pixel: is it within half a box of the centre?  (half a side, rounded down, on either side)"""
    side = np.sqrt(1 - p.lam)
    rows, columns = np.floor(side * height) // 2, np.floor(side * width) // 2
    y0, x0 = np.floor(p.centre[0] * height), np.floor(p.centre[1] * width)
    y, x = np.mgrid[:height, :width]
    return (y0 - rows <= y) & (y < y0 + rows) & (x0 - columns <= x) & (x < x0 + columns)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (9, 14), (1, 5), (7, 7)])
@pytest.mark.parametrize("seed", range(12))
def test_equals_a_pixel_mask(height: int, width: int, seed: int) -> None:
    x, y = torch.randn(5, 3, height, width), torch.tensor([2, 0, 1, 1, 0])
    cutmix = CutMix()
    p = cutmix.draw(5, seeded(seed))
    mask = torch.from_numpy(pasted(p, height, width))
    mixed, soft = cutmix.mix(x, y, p, num_classes=3)
    assert torch.equal(mixed, torch.where(mask, x[p.partner], x))
    kept = 1 - mask.double().mean().item()
    hot = torch.eye(3)[y]
    torch.testing.assert_close(soft, kept * hot + (1 - kept) * hot[p.partner])
    torch.testing.assert_close(soft.sum(1), torch.ones(5))


def test_clipping_raises_the_share_that_stays() -> None:
    partner = torch.tensor([1, 0])
    inside, corner = Cut(0.75, (0.5, 0.5), partner), Cut(0.75, (0.0, 0.0), partner)
    assert box(inside, height=32, width=32) == (8, 24, 8, 24)
    assert kept_area(inside, height=32, width=32) == 0.75
    assert box(corner, height=32, width=32) == (0, 8, 0, 8)
    assert kept_area(corner, height=32, width=32) == 1 - 1 / 16


def test_the_ends() -> None:
    x, partner = torch.randn(2, 1, 8, 8), torch.tensor([1, 0])
    assert torch.equal(CutMix().apply(x, Cut(1.0, (0.5, 0.5), partner)), x)
    assert torch.equal(CutMix().apply(x, Cut(0.0, (0.5, 0.5), partner)), x[partner])
    assert kept_area(Cut(0.0, (0.5, 0.5), partner), height=8, width=8) == 0


def test_input_is_left_alone() -> None:
    x = torch.randn(4, 3, 8, 8)
    before = x.clone()
    CutMix().apply(x, Cut(0.3, (0.5, 0.5), torch.tensor([1, 2, 3, 0])))
    assert torch.equal(x, before)


def test_same_draw_same_result_and_replay() -> None:
    cutmix, x = CutMix(), torch.randn(6, 3, 16, 16)
    p, q = cutmix.draw(6, seeded(3)), cutmix.draw(6, seeded(3))
    assert p.lam == q.lam
    assert p.centre == q.centre
    assert torch.equal(cutmix.apply(x, p), cutmix.apply(x, q))
    assert cutmix.draw(6, seeded(4)).centre != p.centre


def test_how_often_it_cuts_and_that_the_stream_does_not_depend_on_it() -> None:
    always, half, never = (CutMix(prob=p) for p in (1.0, 0.5, 0.0))
    draws = [[c.draw(3, g) for _ in range(1000)] for c, g in ((c, seeded()) for c in (always, half, never))]
    assert all(p.lam < 1 for p in draws[0])
    assert all(p.lam == 1 for p in draws[2])
    cut = [p.lam < 1 for p in draws[1]]
    assert 450 < sum(cut) < 550  # three standard deviations, at a fixed seed
    assert all(torch.equal(p.partner, q.partner) and p.centre == q.centre for p, q in zip(*draws[:2], strict=True))
    assert all(p.lam == q.lam for p, q, c in zip(*draws[:2], cut, strict=True) if c)


def test_distributions() -> None:
    g = seeded()
    draws = [CutMix(alpha=0.5).draw(1, g) for _ in range(2000)]
    assert stats.kstest([p.lam for p in draws], stats.beta(0.5, 0.5).cdf).pvalue > 0.01
    for axis in (0, 1):
        assert stats.kstest([p.centre[axis] for p in draws], stats.uniform.cdf).pvalue > 0.01


def test_is_a_transform() -> None:
    assert isinstance(CutMix(), Transform)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="alpha must be a positive number, got -1"):
        CutMix(alpha=-1.0)
    with pytest.raises(ValueError, match=r"prob must be a probability, in \[0, 1\], got 1\.5"):
        CutMix(prob=1.5)
    with pytest.raises(ValueError, match="batch of 4, got one of 5"):
        CutMix().apply(torch.randn(5, 2, 4, 4), CutMix().draw(4, seeded()))
