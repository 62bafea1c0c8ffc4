"""1-D views: every operation against a loop, the draw kept and replayed, bad input."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from reglet.types import Transform
from reglet.views.series import SeriesDraw, SeriesView, covered, crop, jitter, scale

FULL = SeriesView(crop=(0.4, 0.9), gain=2.0, sigma=0.5, time=0.4, band=0.5)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_it_is_a_transform() -> None:
    assert isinstance(FULL, Transform)


def test_same_draw_same_view() -> None:
    x = torch.randn(6, 4, 30)
    draw = FULL.draw(6, seeded())
    before = x.clone()
    assert torch.equal(FULL.apply(x, draw), FULL.apply(x, draw))
    assert torch.equal(x, before)
    torch.manual_seed(5)  # the global numbers have no part in it
    assert torch.equal(FULL.apply(x, draw), FULL.apply(x, FULL.draw(6, seeded())))
    assert not torch.equal(FULL.apply(x, draw), FULL.apply(x, FULL.draw(6, seeded(1))))


def test_a_series_view_does_not_depend_on_its_batch() -> None:
    x, draw = torch.randn(6, 4, 30), FULL.draw(6, seeded())
    some = torch.tensor([4, 1])
    assert torch.equal(FULL.apply(x, draw)[some], FULL.apply(x[some], draw.take(some)))
    assert torch.equal(FULL.apply(x, draw)[2:5], FULL.apply(x[2:5], draw.take(slice(2, 5))))


def test_nothing_asked_nothing_changed() -> None:
    x = torch.randn(5, 3, 17)
    assert torch.equal(SeriesView().apply(x, SeriesView().draw(5, seeded())), x)


def test_a_draw_fits_any_shape() -> None:
    draw = FULL.draw(3, seeded())
    for shape in ((3, 1, 8), (3, 40, 200)):
        assert FULL.apply(torch.randn(shape), draw).shape == shape
    assert SeriesView(length=12, crop=(0.5, 0.5)).apply(torch.randn(3, 2, 50), draw).shape == (3, 2, 12)


def test_the_draw_is_within_what_was_asked() -> None:
    draw = FULL.draw(2000, seeded())
    width = draw.crop[:, 1]
    assert 0.4 <= width.min() < 0.42
    assert 0.88 < width.max() <= 0.9
    assert 0.5 <= draw.gain.min() < 0.52
    assert 1.9 < draw.gain.max() <= 2.0
    assert abs(float(draw.gain.log().mean())) < 0.05  # as often louder as softer
    assert draw.sigma.min() >= 0
    assert 0.49 < draw.sigma.max() <= 0.5
    assert 0.39 < draw.time[:, 1].max() <= 0.4
    assert 0.49 < draw.band[:, 1].max() <= 0.5
    assert len(draw.noise.unique()) == 2000


def test_crop_against_numpy() -> None:
    x = torch.randn(4, 3, 21, dtype=torch.float64)
    box = torch.tensor([[0.0, 1.0], [1.0, 0.5], [0.3, 0.7], [0.5, 0.01]], dtype=torch.float64)
    got = crop(x, box, length=11)
    for i, (start, width) in enumerate(box.tolist()):
        span = width * 20
        begin = start * (20 - span)
        where = np.linspace(begin, begin + span, 11)
        for c in range(3):
            expected = np.interp(where, np.arange(21), x[i, c].numpy())
            np.testing.assert_allclose(got[i, c].numpy(), expected, atol=1e-9)


def test_scale_and_jitter() -> None:
    x = torch.randn(3, 4, 500)
    assert torch.equal(scale(x, torch.tensor([1.0, 2.0, 0.5]))[1], 2 * x[1])
    noise = jitter(x, torch.tensor([0.0, 0.1, 1.0]), torch.tensor([7, 8, 8])) - x
    assert torch.equal(noise[0], torch.zeros(4, 500))
    torch.testing.assert_close(noise[2], 10 * noise[1], atol=1e-5, rtol=1e-4)  # x + e - x rounds e
    # 2,000 normal numbers: a deviation within 5 of its standard errors, 1 / sqrt(4000)
    assert abs(float(noise[2].std()) - 1) < 5 / 4000**0.5


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_masks_cover_what_they_say(size: int) -> None:
    box = torch.tensor([[0.0, 0.0], [0.0, 0.5], [1.0, 0.5], [0.4, 0.3], [0.5, 0.999]])
    got = covered(box, size)
    for row, (start, width) in zip(got, box.tolist(), strict=True):
        count = min(round(width * size), size - 1)
        where = row.nonzero()[:, 0].tolist()
        assert len(where) == count
        if where:
            assert where == list(range(where[0], where[0] + count))
            assert where[0] == round(start * (size - count))


def test_the_order_is_crop_scale_jitter_mask() -> None:
    """The mask comes last: what it covers is zero, and not noise."""
    x, draw = torch.randn(4, 5, 40), FULL.draw(4, seeded())
    y = crop(x, draw.crop, length=40)
    y = jitter(scale(y, draw.gain), draw.sigma, draw.noise)
    hidden = covered(draw.time, 40)[:, None] | covered(draw.band, 5)[:, :, None]
    assert torch.equal(FULL.apply(x, draw), y.masked_fill(hidden, 0.0))


def test_the_draw_moves_and_is_taken_whole() -> None:
    draw = FULL.draw(5, seeded())
    assert len(draw) == 5
    moved = draw.to("cpu").take(torch.arange(5))
    assert isinstance(moved, SeriesDraw)
    assert all(torch.equal(getattr(moved, f.name), getattr(draw, f.name)) for f in fields(draw))


@pytest.mark.parametrize(
    ("says", "options"),
    [
        ("crop must be a range", {"crop": (0.0, 1.0)}),
        ("crop must be a range", {"crop": (0.9, 0.5)}),
        ("gain must be a number from 1", {"gain": 0.5}),
        ("sigma must be a number of at least 0", {"sigma": -1.0}),
        ("time must be a number in \\[0, 1\\)", {"time": 1.0}),
        ("band must be a number in \\[0, 1\\)", {"band": -0.1}),
        ("length must be a whole number", {"length": -3}),
    ],
)
def test_bad_views(says: str, options: dict) -> None:
    with pytest.raises(ValueError, match=says):
        SeriesView(**options)


def test_bad_series() -> None:
    with pytest.raises(ValueError, match="drawn for a batch of 3, got one of 2"):
        FULL.apply(torch.randn(2, 3, 8), FULL.draw(3))
    for x in (torch.randn(3, 8), torch.zeros(3, 2, 8, dtype=torch.int64), torch.randn(3, 0, 8)):
        with pytest.raises(Exception, match=r"series .* must be|Type-check"):  # the type checker may be first
            FULL.apply(x, FULL.draw(3))
