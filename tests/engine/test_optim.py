"""Learning rate, parameter groups, LARS, and the order of the data."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from reglet.engine.optim import LARS, build_optimizer, learning_rate, parameter_groups
from reglet.engine.order import Shuffled, rank_slice, seed_of


def test_schedule() -> None:
    rates = [learning_rate("cosine", s, steps=100, warmup=10, peak=2.0) for s in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[99] == pytest.approx(1 + math.cos(math.pi * 89 / 90))
    assert max(b - a for a, b in pairwise(rates)) <= 0.2 + 1e-12
    assert learning_rate("cosine", 0, steps=1, warmup=0, peak=1.0) == 1.0


def test_vectors_do_not_decay() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2), nn.LayerNorm(2))
    net[3].weight.requires_grad_(False)
    decays, stays = parameter_groups(net, weight_decay=0.3)
    assert decays["weight_decay"] == 0.3
    assert [p.shape for p in decays["params"]] == [(4, 3, 3, 3)]
    assert stays["weight_decay"] == 0.0
    assert len(stays["params"]) == 6
    with pytest.raises(ValueError, match="no parameter that could be trained"):
        build_optimizer(net.requires_grad_(False), "adamw", lr=0.1, weight_decay=0.0)


def test_lars_takes_the_step_of_its_formula() -> None:
    torch.manual_seed(0)
    weight, bias = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3))
    start = [weight.detach().clone(), bias.detach().clone()]
    optimizer = LARS([weight, bias], lr=0.5, weight_decay=0.1)
    gradients = [(torch.randn(3, 4), torch.randn(3)) for _ in range(3)]
    p, b = start
    m, n = torch.zeros(3, 4), torch.zeros(3)
    for g, h in gradients:
        weight.grad, bias.grad = g.clone(), h.clone()
        optimizer.step()
        u = g + 0.1 * p
        m = 0.9 * m + 1e-3 * p.norm() / u.norm() * u
        n = 0.9 * n + h  # neither decayed nor scaled
        p, b = p - 0.5 * m, b - 0.5 * n
    torch.testing.assert_close(weight.detach(), p)
    torch.testing.assert_close(bias.detach(), b)


def test_lars_leaves_zero_weights_finite() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    weight.grad = torch.ones(2, 2)
    LARS([weight], lr=0.5).step()
    torch.testing.assert_close(weight.detach(), -0.5 * torch.ones(2, 2))


def test_every_epoch_sees_every_image_once_in_an_order_of_its_own() -> None:
    order = Shuffled(n=12, batch=4, seed=3)
    epochs = [torch.cat([order.indices(3 * e + i) for i in range(3)]) for e in range(2)]
    assert all(e.sort().values.equal(torch.arange(12)) for e in epochs)
    assert not epochs[0].equal(epochs[1])
    assert not epochs[0].equal(torch.cat([Shuffled(n=12, batch=4, seed=4).indices(i) for i in range(3)]))
    assert Shuffled(n=14, batch=4, seed=0).per_epoch == 3


def test_ranks_share_the_batch_out() -> None:
    index = torch.arange(12)
    assert torch.cat([index[rank_slice(12, r, 3)] for r in range(3)]).equal(index)


def test_seeds_differ_in_every_number() -> None:
    seeds = {seed_of(a, b, c) for a in range(5) for b in range(5) for c in range(5)}
    assert len(seeds) == 125
    assert seed_of(0, 1) != seed_of(1, 0)
    assert max(seeds) < 2**63
