"""Networks that are equivariant by construction, and ones that are not."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.backbones.vit import ViT
from reglet.diagnostics import agreement, equivariance, layer_maps, predict_flip, predict_rotation, standard_transforms
from reglet.diagnostics.transforms import rotation, scale, translation
from reglet.probes import linear_probe

FOUR = standard_transforms(multiple=4)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def images(n: int = 8, side: int = 16) -> Tensor:
    """Smooth pictures, which a resize keeps."""
    return F.interpolate(normal(n, 3, 4, 4), size=(side, side), mode="bicubic", align_corners=False)


def vit(*, positions: bool) -> ViT:
    """Patches enter by their mean colour, so that only position embeddings tell a turned patch from a plain one."""
    torch.manual_seed(0)
    net = ViT(dim=24, depth=3, heads=2, size=16, patch=4, cls_layer=0)
    with torch.no_grad():
        weight = net.patch_embed.proj.weight
        weight.copy_(weight.mean((2, 3), keepdim=True).expand_as(weight))
        net.pos_embed.mul_(100.0 if positions else 0.0)
    return net


def test_an_equivariant_transformer_scores_one() -> None:
    scores = equivariance(layer_maps(vit(positions=False), "blocks.*", patch=4), images(), transforms=FOUR)
    assert list(scores) == ["blocks.0", "blocks.1", "blocks.2"]
    for layer in scores.values():
        for name in ("rot90", "rot180", "rot270", "flip"):
            assert layer[name].raw == pytest.approx(1, abs=1e-5)
            assert layer[name].centred == pytest.approx(1, abs=1e-5)
            assert layer[name].centred_floor < 0.5


def test_positions_break_it() -> None:
    plain, placed = (
        equivariance(layer_maps(vit(positions=p), "blocks.2", patch=4), images(), transforms=FOUR)["blocks.2"]
        for p in (False, True)
    )
    for name in ("rot90", "flip"):
        assert placed[name].raw < 0.9
        assert placed[name].centred < plain[name].centred - 0.3


def test_pooling_and_pointwise_layers_commute_with_everything() -> None:
    net = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(3, 6, 1))
    scores = equivariance(layer_maps(net, "1"), images(), transforms=standard_transforms(multiple=2))["1"]
    for name in ("rot90", "flip", "shift"):
        assert scores[name].centred == pytest.approx(1, abs=1e-5)
    for name in ("smaller", "larger"):
        assert scores[name].centred > 0.98  # a resize is not exact


def test_a_convolution_commutes_with_shifts_and_not_with_turns() -> None:
    torch.manual_seed(0)
    net = nn.Conv2d(3, 32, 3, bias=False)  # no padding: nothing but what it sees
    x = normal(8, 3, 16, 16)
    shift = equivariance(lambda x: {"conv": net(F.pad(x, (1, 1, 1, 1), mode="circular"))}, x)["conv"]
    assert shift["shift"].raw == pytest.approx(1, abs=1e-5)
    assert shift["rot90"].raw < 0.6


def test_what_leaves_the_frame_is_not_compared() -> None:
    def shifted(x: Tensor) -> Tensor:
        return F.pad(x, (4, 0, 4, 0))[:, :, :16, :16]  # what enters is black, and not what left

    black = translation(0.25)._replace(image=shifted)
    score = equivariance(lambda x: {"pixels": x}, normal(4, 3, 16, 16), transforms={"shift": black})["pixels"]["shift"]
    assert score.raw == pytest.approx(1, abs=1e-6)


def test_floor_is_the_mean_over_shuffles() -> None:
    a, b = normal(3, 5, 2, 3), normal(3, 5, 2, 3, seed=1) + 1
    x, y = (F.normalize(m.double().flatten(2), dim=1) for m in (a, b))
    pairs = [(x[:, :, p] * y[:, :, q]).sum(1).mean() for p in range(6) for q in range(6)]
    found = agreement(a, b)
    assert found.floor == pytest.approx(float(torch.stack(pairs).mean()))
    assert found.raw == pytest.approx(float(torch.stack(pairs[::7]).mean()))


def test_a_common_mean_inflates_the_raw_score_and_the_floor_shows_it() -> None:
    a, b = normal(20, 8, 6, 6), normal(20, 8, 6, 6, seed=1)
    found = agreement(a + 10, b + 10)  # unrelated maps
    assert found.raw > 0.95
    assert found.floor == pytest.approx(found.raw, abs=0.01)
    assert abs(found.centred) < 0.03


def test_transforms_act_as_they_say() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4)
    turned = rotation(1).image(x)
    assert turned[0, 0, 0].tolist() == [3, 7, 11, 15]  # counter-clockwise: the right column comes to the top
    assert torch.equal(rotation(1).tokens(x, x), turned)
    moved = translation(0.25)
    assert moved.image(x)[0, 0, 1:, 1:].tolist() == x[0, 0, :-1, :-1].tolist()
    assert moved.inside(4, 8) == (slice(1, None), slice(2, None))
    half = moved.tokens(torch.tensor([[[[1.0, 3.0]]]]), x)  # half a cell of two
    assert half.tolist() == [[[[2.0, 2.0]]]]
    assert scale(0.5, multiple=4).image(torch.zeros(1, 1, 20, 24)).shape == (1, 1, 8, 12)
    with pytest.raises(ValueError, match="a share between 0 and 1"):
        translation(1.0)


def test_layers_of_tokens_need_a_patch_and_the_model_stays_as_it_was() -> None:
    net = vit(positions=True).train()
    hooks = sum(len(m._forward_hooks) for m in net.modules())
    with pytest.raises(ValueError, match=r"'blocks.1' returns \(8, 17, 24\)"):
        layer_maps(net, "blocks.1")(images())
    maps = layer_maps(net, "blocks.1", patch=4, batch=3)(images())["blocks.1"]
    assert maps.shape == (8, 24, 4, 4)
    torch.testing.assert_close(maps, layer_maps(net, "blocks.1", patch=4)(images())["blocks.1"])
    assert net.training
    assert sum(len(m._forward_hooks) for m in net.modules()) == hooks


def score(*parts: Tensor) -> float:
    return linear_probe(*parts, strengths=[1e-3]).accuracy


def test_rotations_are_read_from_what_sees_them_and_not_from_what_does_not() -> None:
    ramp = torch.linspace(-1, 1, 8).view(1, 1, 8, 1).expand(60, 3, 8, 8)  # bright below
    x = ramp + 0.3 * normal(60, 3, 8, 8)

    def edges(x: Tensor) -> dict[str, Tensor]:
        return {"edges": torch.cat([x[:, :, 4:].mean((2, 3)) - x[:, :, :4].mean((2, 3)), x[..., 4:].mean((2, 3))], 1)}

    accuracy = predict_rotation(edges, x, score=score)
    assert accuracy["edges"] > 0.95
    blind = predict_rotation(lambda x: {"mean": x}, x, score=score)["mean"]  # the mean over places does not turn
    assert blind == pytest.approx(0.25, abs=0.08)


def test_flips_of_symmetric_pictures_cannot_be_told_but_the_pair_may() -> None:
    x = normal(80, 3, 6, 6)

    def left(x: Tensor) -> dict[str, Tensor]:
        return {"left": x[..., :3]}

    symmetric = x + x.flip(3)
    assert predict_flip(left, symmetric, score=score)["left"] == pytest.approx(0.5)
    asymmetric = x + torch.linspace(-2, 2, 6)
    assert predict_flip(left, asymmetric, score=score)["left"] > 0.95
    lit = x / 10 + torch.linspace(-1, 1, 6) + 30 * normal(80, 1, 1, 1, seed=2)  # and each in a light of its own
    assert predict_flip(left, lit, score=score)["left"] < 0.75
    assert predict_flip(left, lit, score=score, pair=True)["left"] > 0.95


def test_an_image_and_its_copies_are_on_one_side_of_the_split() -> None:
    x = torch.arange(10.0).view(10, 1, 1, 1).expand(10, 1, 4, 4)
    seen: list[set[float]] = []

    def spy(train: Tensor, y: Tensor, test: Tensor, y_test: Tensor) -> float:
        seen.extend([set(train[:, 0].tolist()), set(test[:, 0].tolist())])
        assert y.bincount().tolist() == [5, 5, 5, 5]
        assert y_test.bincount().tolist() == [5, 5, 5, 5]
        return math.nan

    predict_rotation(lambda x: {"x": x}, x, score=spy)
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == 10
    with pytest.raises(ValueError, match="square images, got 4 x 5"):
        predict_rotation(lambda x: {"x": x}, torch.zeros(6, 1, 4, 5), score=spy)
