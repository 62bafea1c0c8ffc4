"""Draw, then apply: what was drawn is data, and the same draw gives the same views."""

from dataclasses import fields, replace
from types import ModuleType

import pytest
import torch
from torch import Tensor

from reglet import views
from reglet.types import Transform


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photos(n: int = 12, c: int = 3, size: int = 20) -> Tensor:
    return torch.randint(256, (n, c, size, size), dtype=torch.uint8, generator=seeded(9))


EVERYTHING = views.View(
    16,
    views.ResizedCrop((0.3, 1.0), interpolation="bicubic"),
    flip=0.5,
    rotate=20.0,
    turns=True,
    jitter=views.ColorJitter(),
    gray=0.3,
    blur=views.Blur(5),
    solarize=0.3,
)


@pytest.mark.parametrize("name", views.POLICIES)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_policy_replays_its_draw(name: str, channels: int) -> None:
    policy = views.policy(name, size=20)
    draws = policy.draw(6, seeded())
    x = photos(6, channels)
    before = x.clone()
    once, again = policy.apply(x, draws), policy.apply(x, draws)
    assert len(once) == len(draws) == len(policy.views)
    for view, a, b in zip(policy.views, once, again, strict=True):
        assert a.shape == (6, channels, view.size, view.size)
        assert a.dtype == torch.float32
        assert a.isfinite().all()
        assert torch.equal(a, b)
    assert torch.equal(x, before)
    assert [view.size for view in policy.views[: policy.n_global]] == [policy.size] * policy.n_global


def test_a_draw_comes_from_its_generator_alone() -> None:
    torch.manual_seed(1)
    first = EVERYTHING.draw(40, seeded())
    torch.manual_seed(2)
    second, third = EVERYTHING.draw(40, seeded()), EVERYTHING.draw(40, seeded(1))
    for field in fields(views.Draw):
        a, b, c = (getattr(draw, field.name) for draw in (first, second, third))
        assert torch.equal(a, b), field.name
        assert not torch.equal(a, c), field.name


@pytest.mark.parametrize("index", [slice(3, 9), torch.tensor([7, 0, 7, 11])])
def test_a_part_of_the_draw_gives_that_part_of_the_views(index: slice | Tensor) -> None:
    """What ranks rely on: draw for the whole batch, take one's share."""
    x, draw = photos(), EVERYTHING.draw(12, seeded())
    part = draw.take(index)
    assert len(part) == len(x[index])
    torch.testing.assert_close(EVERYTHING.apply(x[index], part), EVERYTHING.apply(x, draw)[index], atol=2e-5, rtol=0)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    x, draw = photos(), EVERYTHING.draw(12, seeded())
    whole = EVERYTHING.apply(x, draw)
    monkeypatch.setattr("reglet.views.view._CACHED", 5 * 3 * 16**2)
    torch.testing.assert_close(EVERYTHING.apply(x, draw), whole, atol=2e-5, rtol=0)


@pytest.mark.parametrize("size", [32, 160])
def test_neighbours_in_a_batch_change_no_bit(size: int) -> None:
    """Two ranks see what one process sees.  Images are sorted by their jitter before it, and large ones are tiled."""
    policy = views.policy("simclr", size=size)
    draws = policy.draw(16, seeded())
    crops = [photos(16, size=size)] * 2
    before = crops[0].clone()
    whole = policy.finish(crops, draws)
    assert torch.equal(crops[0], before)
    for part in (slice(0, 5), slice(5, 16), torch.tensor([11, 3, 7])):
        some = policy.finish([x[part] for x in crops], [draw.take(part) for draw in draws])
        assert all(torch.equal(a, b[part]) for a, b in zip(some, whole, strict=True))


def test_a_view_is_its_operations_in_order() -> None:
    x, view = photos().float() / 255, replace(EVERYTHING, normalize=None)
    draw = view.draw(12, seeded(3))
    whole = view.apply(x, draw)
    for i in range(12):
        one = draw.take(slice(i, i + 1))
        y = views.resized_crop(x[i : i + 1], view.boxes(one, height=20, width=20), size=16, interpolation="bicubic")
        y = views.hflip(y.clamp(0, 1), one.flip)
        y = views.quarter_turn(views.rotate(y, one.angle), one.turn)
        if one.jitter:
            y = views.color_jitter(y, one.factors, one.order)
        if one.gray:
            y = views.rgb_to_grayscale(y).expand(-1, 3, -1, -1)
        if one.sigma > 0:
            y = views.gaussian_blur(y, one.sigma, kernel=5)
        if one.solarize:
            y = views.solarize(y)
        # 2e-5: an angle's rounding, as in test_rotate; solarization is left out where it cuts between two such values
        apart = (whole[i] - y[0]).abs()
        assert apart.quantile(0.99) < 2e-5
        assert apart.max() < 2e-5 or bool(one.solarize)


def test_bytes_and_floats_give_the_same_view() -> None:
    x, draw = photos(), EVERYTHING.draw(12, seeded())
    draw = replace(draw, solarize=torch.zeros(12, dtype=torch.bool))  # a threshold turns rounding into a jump
    torch.testing.assert_close(EVERYTHING.apply(x, draw), EVERYTHING.apply(x.float() / 255, draw), atol=5e-5, rtol=0)


def test_pixels_stay_in_range_before_normalisation() -> None:
    view = replace(EVERYTHING, normalize=None)
    y = view.apply(photos(), view.draw(12, seeded()))
    assert y.min() >= 0
    assert y.max() <= 1 + 1e-6  # a rotation's four weights sum to 1 to within rounding


def test_spared_images_hold_the_identity() -> None:
    view = views.View(20, views.ResizedCrop((1.0, 1.0), (1.0, 1.0)), normalize=None)
    x, draw = photos(), view.draw(12, seeded())
    torch.testing.assert_close(view.apply(x, draw), x / 255)
    assert not (draw.flip | draw.jitter | draw.gray | draw.solarize).any()
    assert not torch.stack([draw.angle, draw.turn, draw.sigma]).any()
    assert draw.factors.tolist() == [[1, 1, 1, 0]] * 12


def test_how_often_and_how_much() -> None:
    n = 4000
    draw = EVERYTHING.draw(n, seeded())
    for name, p in (("flip", 0.5), ("jitter", 0.8), ("gray", 0.3), ("solarize", 0.3)):
        assert abs(getattr(draw, name).float().mean() - p) < 0.03, name  # four deviations of a mean of 4000 coins
    blurred = draw.sigma[draw.sigma > 0]
    assert abs(len(blurred) / n - 0.5) < 0.03
    assert 0.1 <= blurred.min() < 0.12
    assert 1.98 < blurred.max() <= 2.0
    assert draw.factors.amin(0).sub(torch.tensor([0.6, 0.6, 0.8, -0.1])).abs().max() < 0.01
    assert draw.factors.amax(0).sub(torch.tensor([1.4, 1.4, 1.2, 0.1])).abs().max() < 0.01
    orders = draw.order.mul(torch.tensor([64, 16, 4, 1])).sum(1).bincount()
    assert (orders > 0).sum() == 24
    assert orders[orders > 0].min() > 100  # of 167 expected
    assert draw.turn.bincount(minlength=4).min() > 850
    assert 19 < draw.angle.max() <= 20
    assert -20 <= draw.angle.min() < -19


def test_draws_do_not_depend_on_each_other() -> None:
    draw = EVERYTHING.draw(4000, seeded())
    names = ("flip", "angle", "turn", "jitter", "gray", "sigma", "solarize")
    columns = [getattr(draw, name).float() for name in names] + [*draw.factors.T, *draw.crop.T[:2], draw.crop[:, 2]]
    apart = torch.corrcoef(torch.stack(columns)).fill_diagonal_(0).abs()
    assert apart.max() < 0.07  # four deviations are 0.063, and a fixed seed tosses no coins


@pytest.mark.parametrize(("height", "width"), [(64, 64), (48, 96), (30, 200)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.05, 0.3)])
def test_boxes_are_distributed_as_torchvisions(
    v2: ModuleType, scale: tuple[float, float], height: int, width: int
) -> None:
    n = 1500
    crop, aspect = views.ResizedCrop(scale), torch.full((n,), width / height)
    ours = crop.boxes(crop.draw(n, seeded(), aspect=aspect), height=height, width=width, size=32).double()
    torch.manual_seed(0)
    peer, image = v2.RandomResizedCrop(32, scale=scale, antialias=True), torch.zeros(3, height, width)
    found = [peer.make_params([image]) for _ in range(n)]
    theirs = torch.tensor([[p[key] for key in ("top", "left", "height", "width")] for p in found]).double()
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, 2:] >= 1).all()
    assert (ours[:, 0] + ours[:, 2] <= height).all()
    assert (ours[:, 1] + ours[:, 3] <= width).all()
    # Four deviations of the difference of two means, and half a pixel for boxes refused here and rounded there.
    error = 4 * (2 / n) ** 0.5 * theirs.std(0) + 0.5
    assert ((ours.mean(0) - theirs.mean(0)).abs() < error).all()
    assert (ours.std(0) / theirs.std(0).clamp(min=1e-9)).log().abs()[theirs.std(0) > 0].max() < 0.12


def test_where_no_box_fits_the_largest_in_the_middle(v2: ModuleType) -> None:
    crop = views.ResizedCrop((0.9, 1.0))
    box = crop.boxes(crop.draw(3, seeded(), aspect=torch.full((3,), 5.0)), height=41, width=205, size=8)
    params = v2.RandomResizedCrop(8, scale=(0.9, 1.0)).make_params([torch.zeros(3, 41, 205)])
    assert box.tolist() == [[params[key] for key in ("top", "left", "height", "width")]] * 3


def test_pad_crop_is_a_window_of_the_padded_image() -> None:
    view = views.View(20, views.PadCrop(3), flip=0.5, normalize=None)
    x, draw = photos(64), view.draw(64, seeded())
    boxes = view.boxes(draw, height=20, width=20)
    assert boxes[:, :2].amin(0).tolist() == [-3, -3]
    assert boxes[:, :2].amax(0).tolist() == [3, 3]
    y = view.apply(x, draw)
    for k in range(64):
        i, j = (boxes[k, :2] + 3).tolist()
        window = torch.nn.functional.pad(x[k], [3] * 4)[:, i : i + 20, j : j + 20] / 255
        assert torch.equal(y[k], window.flip(2) if draw.flip[k] else window)


def test_shared_geometry_leaves_colours_their_own() -> None:
    policy = views.policy("ser", size=16)
    draws = policy.draw(8, seeded())
    shared = views.share_geometry(draws)
    for name in ("crop", "flip", "angle", "turn"):
        assert torch.equal(getattr(shared[1], name), getattr(draws[0], name))
    for name in ("jitter", "factors", "order", "gray", "sigma", "solarize"):
        assert torch.equal(getattr(shared[1], name), getattr(draws[1], name))
    assert not torch.equal(draws[0].crop, draws[1].crop)


def test_autocast_changes_nothing() -> None:
    x, draw = photos(), EVERYTHING.draw(12, seeded())
    with torch.autocast("cpu", dtype=torch.float16):
        inside = EVERYTHING.apply(x, draw)
    assert torch.equal(inside, EVERYTHING.apply(x, draw))


def test_papers_figures() -> None:
    visreg = views.policy("visreg", size=224)
    assert (len(visreg.views), visreg.n_global) == (10, 4)
    assert [view.size for view in visreg.views] == [224] * 4 + [96] * 6
    assert visreg == views.policy("lejepa", size=224)
    assert {view.crop for view in visreg.views[4:]} == {views.ResizedCrop((0.05, 0.3), interpolation="bicubic")}
    first, second = views.policy("moco", size=224).views
    assert first.blur == views.Blur(23, p=1.0)
    assert second.blur == views.Blur(23, p=0.1)
    assert (first.solarize, second.solarize) == (0.0, 0.2)
    assert views.policy("digits", size=32).views[0].flip == 0
    more = views.policy("byol", size=32, n_global=3, normalize=views.Normalize((0.5,), (0.5,)))
    assert [view.solarize for view in more.views] == [0.0, 0.2, 0.0]
    assert {view.normalize for view in more.views} == {views.Normalize((0.5,), (0.5,))}


def test_is_a_transform() -> None:
    assert isinstance(EVERYTHING, Transform)
    assert isinstance(views.policy("smi", size=8), Transform)


def test_an_aspect_moves_only_its_own_box() -> None:
    crop = views.ResizedCrop()
    square = crop.draw(4, seeded())
    mixed = crop.draw(4, seeded(), aspect=torch.tensor([1.0, 1.0, 3.0, 1.0]))
    same = (square == mixed).all(1)
    assert same.tolist() == [True, True, False, True]
    boxes = crop.boxes(mixed, height=torch.tensor([20, 30, 20, 9]), width=torch.tensor([20, 30, 60, 9]), size=8)
    for k, (h, w) in enumerate([(20, 20), (30, 30), (20, 60), (9, 9)]):
        assert torch.equal(boxes[k], crop.boxes(mixed[k : k + 1], height=h, width=w, size=8)[0])


@pytest.mark.parametrize("name", ["ser", "visreg", "digits-strong"])
def test_a_crop_made_at_the_source_and_the_rest_after_it_are_the_view(name: str) -> None:
    policy, x = views.policy(name, size=16), torch.rand(6, 3, 20, 30, generator=seeded())
    draws = policy.draw(6, seeded(), aspect=torch.full((6,), 1.5))
    made = [
        views.resized_crop(x, boxes, size=size, interpolation=how).clamp(0, 1)
        for boxes, size, how, _ in policy.crops(draws, height=20, width=30)
    ]
    for one, other in zip(policy.apply(x, draws), policy.finish(made, draws), strict=True):
        assert torch.allclose(one, other, atol=1e-5)  # the flip is in the matrix here, and after the sum there


def test_images_of_many_channels_have_views_too() -> None:
    policy = views.policy("byol", size=16)
    x, draws = torch.rand(6, 5, 20, 20, generator=seeded()), policy.draw(6, seeded())
    first, _ = policy.apply(x, draws)
    assert first.shape == (6, 5, 16, 16)
    assert torch.isfinite(first).all()
    order = torch.randperm(5)  # every channel has the same treatment
    assert torch.allclose(policy.apply(x[:, order], draws)[0], first[:, order], atol=1e-5)
