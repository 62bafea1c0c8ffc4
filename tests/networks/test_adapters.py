"""Adapters against sums written out, and SIM on their blocks."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.attach import attach
from reglet.blocks import SIM
from reglet.networks.adapters import GatedAttention, MetaAdapter, TipAdapter, TipAdapterF, class_means

C, K, D = 4, 3, 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def shots() -> Tensor:
    return drawn(C * K, D)


LABELS = torch.arange(C).repeat_interleave(K)


def test_tip_adapter_is_its_closed_form(shots: Tensor) -> None:
    x, classes = drawn(5, D, seed=1), drawn(C, D, seed=2)
    found = TipAdapter(shots, LABELS, classes, alpha=1.7, beta=5.5, scale=3.0)(x)
    for i in range(5):
        for c in range(C):
            cached = sum(
                math.exp(-5.5 * (1 - float(F.cosine_similarity(x[i], shots[j], dim=0))))
                for j in range(C * K)
                if LABELS[j] == c
            )
            head = float(F.cosine_similarity(x[i], classes[c], dim=0))
            assert float(found[i, c]) == pytest.approx(1.7 * cached + 3.0 * head, rel=1e-12)


def test_the_trained_form_begins_as_the_closed_one_and_trains_its_keys_alone(shots: Tensor) -> None:
    x, classes = drawn(5, D, seed=1), drawn(C, D, seed=2)
    free, trained = (kind(shots, LABELS, classes) for kind in (TipAdapter, TipAdapterF))
    torch.testing.assert_close(trained(x), free(x), rtol=1e-12, atol=0)
    assert not list(free.parameters())
    assert [name for name, _ in trained.named_parameters()] == ["cache.weight"]
    F.cross_entropy(trained(x), torch.tensor([0, 1, 2, 3, 0])).backward()
    assert trained.cache.weight.grad is not None
    assert bool((trained.cache.weight.grad.abs().sum(1) > 0).all())  # every key


def test_class_means_are_means_of_directions() -> None:
    x = torch.tensor([[10.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    found = class_means(x, torch.tensor([1, 1, 0]), classes=2)
    torch.testing.assert_close(found, torch.tensor([[0.0, -1.0], [math.sqrt(0.5), math.sqrt(0.5)]]))


@pytest.mark.parametrize("heads", [1, 2])
def test_gated_attention_is_its_sums(heads: int) -> None:
    torch.manual_seed(0)
    net = GatedAttention(D, heads=heads).double().requires_grad_(False)
    w, shots = drawn(C, D, seed=3), drawn(C, K, D, seed=4)
    found, part = net(w, shots), D // heads
    for c in range(C):
        q, g = net.query(w[c]), torch.sigmoid(net.gate(w[c]))
        attended = torch.zeros(D, dtype=torch.float64)
        for h in range(heads):
            own = slice(h * part, (h + 1) * part)
            scores = [float(q[own] @ net.key(shots[c, k])[own]) / math.sqrt(part) for k in range(K)]
            total = sum(map(math.exp, scores))
            for k in range(K):
                attended[own] += math.exp(scores[k]) / total * shots[c, k, own]
        expected = w[c] + g * attended
        torch.testing.assert_close(found[c], expected / expected.norm(), rtol=1e-10, atol=1e-12)


def test_meta_adapter_knows_no_class_and_no_order_of_shots() -> None:
    torch.manual_seed(0)
    net = MetaAdapter(D).double()
    x, classes, shots = drawn(5, D, seed=1), drawn(C, D, seed=2), drawn(C, K, D, seed=3)
    logits, order = net(x, classes, shots), torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(net(x, classes[order], shots[order]), logits[:, order])
    torch.testing.assert_close(net(x, classes, shots.flip(1)), logits)
    torch.testing.assert_close(net(x, classes[:2], shots[:2]), logits[:, :2])


def test_heads_must_divide() -> None:
    with pytest.raises(ValueError, match="6 features cannot be cut into 4 heads"):
        MetaAdapter(D, heads=4)


def cases() -> list[tuple[TipAdapterF | MetaAdapter, tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    shots = torch.randn(C, K, D)
    tip = TipAdapterF(shots.flatten(0, 1), LABELS, torch.randn(C, D))
    return [(tip, (torch.randn(8, D),)), (MetaAdapter(D), (torch.randn(8, D), torch.randn(C, D), shots))]


@pytest.mark.parametrize(("net", "inputs"), cases(), ids=["tip-adapter-f", "meta-adapter"])
def test_sim_reaches_the_adapter_and_leaves_no_trace(net: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    assert isinstance(net, TipAdapterF | MetaAdapter)
    before, state = net(*inputs), {key: value.clone() for key, value in net.state_dict().items()}
    sim = attach(net, list(net.sim_blocks), SIM(), example=inputs)
    net.train()
    net(*inputs)
    sim.loss().backward()
    for name, p in net.named_parameters():
        assert p.grad is not None and bool(p.grad.abs().sum() > 0), name  # noqa: PT018
    sim.remove()
    assert torch.equal(net(*inputs), before)
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
