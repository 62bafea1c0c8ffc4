"""The parts of CUT: PatchNCE against sums written out, shapes, and SIM on the generator."""

import math

import pytest
import torch
import torch.nn.functional as F

from reglet.attach import attach
from reglet.blocks import SIM
from reglet.blocks.patch_ntxent import patch_ntxent
from reglet.networks.translation import (
    Generator,
    PatchDiscriminator,
    PatchMLP,
    draw_places,
    generator_small,
    patch_discriminator_small,
    patch_nce,
)

N, P, K = 3, 5, 4


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    v, source = (torch.randn(N, P, K, generator=generator, dtype=torch.float64) for _ in range(2))
    return v.requires_grad_(), source.requires_grad_()


def test_patch_nce_is_its_sum_over_the_places_of_each_image() -> None:
    v, source = (x.detach() for x in pair())
    total = 0.0
    for i in range(N):
        for s in range(P):
            scores = [float(F.cosine_similarity(v[i, s], source[i, u], dim=0)) / 0.07 for u in range(P)]
            total -= scores[s] - math.log(sum(map(math.exp, scores)))
    assert float(patch_nce(v, source)) == pytest.approx(total / (N * P), rel=1e-12)


def test_patch_nce_is_patch_ntxent_between_images_of_one_token() -> None:
    """Value and gradient, by another implementation."""
    v, source = pair()
    each = [
        patch_ntxent(a[:, None], b[:, None], temperature=0.07, intra=False, symmetric=False)
        for a, b in zip(v, source.detach(), strict=True)
    ]
    other = torch.stack(each).mean()
    value = patch_nce(v, source)
    torch.testing.assert_close(value, other)
    torch.testing.assert_close(torch.autograd.grad(value, v)[0], torch.autograd.grad(other, v)[0])


def test_patch_nce_trains_the_translation_alone() -> None:
    v, source = pair()
    patch_nce(v, source).backward()
    assert v.grad is not None
    assert source.grad is None
    assert torch.autograd.gradcheck(lambda v: patch_nce(v, source.detach(), temperature=0.5), v)


def test_patch_nce_needs_negatives() -> None:
    with pytest.raises(ValueError, match=r"two places at least.*got 1"):
        patch_nce(torch.ones(2, 1, 4), torch.ones(2, 1, 4))


def test_places_are_distinct_and_the_vectors_are_theirs() -> None:
    maps = [torch.randn(2, 3, 4, 4), torch.randn(2, 5, 2, 2)]
    places = draw_places(maps, count=6, generator=torch.Generator().manual_seed(0))
    assert [len(set(index.tolist())) for index in places] == [6, 4]
    mlp = PatchMLP((3, 5), width=7)
    found = mlp(maps, places)
    assert [tuple(y.shape) for y in found] == [(2, 6, 7), (2, 4, 7)]
    row, column = divmod(int(places[0][2]), 4)
    torch.testing.assert_close(found[0][1, 2], mlp.layers[0](maps[0][1, :, row, column]))


@pytest.mark.parametrize("size", [(16, 16), (20, 32)])
def test_generator_and_discriminator_keep_their_shapes(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    net, x = Generator(width=4, depth=3, channels=1), torch.randn(2, 1, *size)
    y = net(x)
    assert y.shape == x.shape
    assert float(y.detach().abs().max()) <= 1
    maps = net.features(x)
    assert [m.shape[1] for m in maps] == list(net.widths)
    assert torch.equal(maps[-1], net.blocks[1](maps[-2]))  # the middle one of three
    assert patch_discriminator_small(width=4, channels=1)(y).shape[1] == 1


@pytest.mark.parametrize("size", [(12, 12), (18, 16), (16, 4)])
def test_images_that_do_not_fit_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"multiples of 4, at least 16; got {size[0]} x {size[1]}"):
        generator_small(width=4)(torch.zeros(1, 3, *size))


def test_sim_reaches_every_block_and_leaves_no_trace() -> None:
    torch.manual_seed(0)
    net, x = Generator(width=4, depth=2), torch.randn(2, 3, 16, 16)
    before, state = net(x).detach(), {key: value.clone() for key, value in net.state_dict().items()}
    sim = attach(net, list(net.sim_blocks), SIM(), example=x)
    assert sim.blocks == ["down.0", "down.1", "blocks.0", "blocks.1", "up.0", "up.1"]
    net.train()
    net(x)
    sim.loss().backward()
    for name, p in net.named_parameters():
        reached = p.grad is not None and bool(p.grad.abs().sum() > 0)
        assert reached != name.startswith("head"), name  # the head comes after all blocks
    sim.remove()
    assert torch.equal(net(x), before)
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())


def test_the_canonical_names_have_the_published_sizes() -> None:
    """11.378 and 2.765 million are remembered from CUT's log, without a source here.

    There every convolution has a bias, which instance norm undoes.
    """
    with torch.device("meta"):
        generator, critic = Generator(), PatchDiscriminator()
    biases = sum(m.out_channels for net in (generator, critic) for m in net.modules() if _undone(m))
    weights = sum(p.numel() for net in (generator, critic) for p in net.parameters())
    assert round((weights + biases) / 1e6, 2) == round(11.378 + 2.765, 2)
    assert len(generator.blocks) == 9


def _undone(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Conv2d) and module.bias is None
