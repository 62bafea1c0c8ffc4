from collections import Counter
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from reglet.latent import LayerMix, ManifoldMixup, Mix

CLASSES = 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()


def data(n: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(n) % CLASSES


def mixed(h: Tensor, mix: Mix) -> Tensor:
    return torch.stack([mix.lam * h[i] + (1 - mix.lam) * h[j] for i, j in enumerate(mix.partner.tolist())])


@pytest.mark.parametrize("layer", ["input", "1", "2"])
def test_equals_mixing_by_hand(layer: str) -> None:
    model, (x, y) = network(), data()
    mixing = ManifoldMixup(model, ["1", "2"])
    p = LayerMix(layer, Mix(0.3, torch.tensor([2, 0, 1, 5, 4, 3])))
    cut = {"input": 0, "1": 2, "2": 3}[layer]
    logits = model[cut:](mixed(model[:cut](x), p.mix))
    torch.testing.assert_close(mixing(x, p), logits)
    ce = F.cross_entropy
    want = 0.3 * ce(logits, y) + 0.7 * ce(logits, y[p.mix.partner])
    got = ce(mixing(x, p), mixing.labels(y, p, num_classes=CLASSES).double())
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0)
    for a, b in zip(*(torch.autograd.grad(v, model.parameters()) for v in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_only_calls_through_it_are_mixed_and_remove_leaves_nothing() -> None:
    model, (x, _) = network(), data()
    before, keys = model(x), list(model.state_dict())
    mixing = ManifoldMixup(model, "1", with_input=False)
    p = LayerMix("1", Mix(0.3, torch.tensor([2, 0, 1, 5, 4, 3])))
    assert not torch.allclose(mixing(x, p), before)
    assert torch.equal(model(x), before)
    assert torch.equal(deepcopy(model)(x), before)
    mixing.remove()
    assert torch.equal(model(x), before)
    assert list(model.state_dict()) == keys
    assert not any(m._forward_hooks for m in model.modules())


def test_every_layer_is_drawn_equally_often_and_a_draw_can_be_replayed() -> None:
    mixing, g = ManifoldMixup(network(), ["1", "3"], alpha=0.5), torch.Generator().manual_seed(0)
    seen = Counter(mixing.draw(2, g).layer for _ in range(900))
    assert set(seen) == {"input", "1", "3"}
    assert all(230 < n < 370 for n in seen.values())  # five standard deviations, at a fixed seed
    p, q = (mixing.draw(6, torch.Generator().manual_seed(3)) for _ in range(2))
    assert p.layer == q.layer
    assert p.mix.lam == q.mix.lam
    assert torch.equal(p.mix.partner, q.mix.partner)


class Checkpointed(nn.Module):
    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.net, x, use_reentrant=False)
        return y


def test_a_checkpointed_block_is_mixed_again_when_it_is_recomputed() -> None:
    x, _ = data()
    p = LayerMix("net.1", Mix(0.3, torch.tensor([2, 0, 1, 5, 4, 3])))
    plain, saved = network(), network()
    ManifoldMixup(plain, "1")(x, LayerMix("1", p.mix)).square().sum().backward()
    mixing = ManifoldMixup(Checkpointed(saved), "net.1")
    mixing(x, p).square().sum().backward()
    for a, b in zip(plain.parameters(), saved.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_checkpointed_calls_of_all_kinds_one_after_another() -> None:
    x, _ = data()
    draws = [LayerMix(layer, Mix(lam, torch.tensor([2, 0, 1, 5, 4, 3]))) for layer, lam in (("1", 0.3), ("input", 0.6))]
    plain, saved = network(), network()
    model = Checkpointed(saved)
    one, two = ManifoldMixup(plain, "1"), ManifoldMixup(model, "net.1")
    for p in (draws[0], None, draws[1], draws[0], None, None):
        for net, mixing, prefix in ((plain, one, ""), (model, two, "net.")):
            net.zero_grad()
            named = p and LayerMix(p.layer if p.layer == "input" else prefix + p.layer, p.mix)
            (net(x) if named is None else mixing(x, named)).square().sum().backward()
        for a, b in zip(plain.parameters(), saved.parameters(), strict=True):
            torch.testing.assert_close(b.grad, a.grad)


def test_two_checkpointed_calls_before_a_backward_are_refused() -> None:
    x, _ = data()
    model = Checkpointed(network())
    mixing = ManifoldMixup(model, "net.1", with_input=False)
    value = mixing(x, mixing.draw(6)).sum() + mixing(x, mixing.draw(6)).sum()
    with pytest.raises(RuntimeError, match="cannot tell which one to repeat"):
        value.backward()


def test_bad_input() -> None:
    model, (x, _) = network(), data()
    mixing = ManifoldMixup(model, ["1", "3"])
    with pytest.raises(ValueError, match="drawn for layer '2'; here are input, 1, 3"):
        mixing(x, LayerMix("2", mixing.draw(6).mix))
    with pytest.raises(ValueError, match="batch of 5, got one of 6"):
        mixing(x, LayerMix("1", mixing.draw(5).mix))
    with pytest.raises(LookupError, match="no module matches 'blocks'"):
        ManifoldMixup(model, "blocks")
    model[1].eval()
    with pytest.raises(RuntimeError, match="'1' did not run in training mode"):
        mixing(x, LayerMix("1", mixing.draw(6).mix))
    model.eval()
    with pytest.raises(RuntimeError, match="this model is in eval mode"):
        mixing(x, mixing.draw(6))
    named = nn.ModuleDict({"input": nn.Linear(2, 2)})
    with pytest.raises(ValueError, match="a block has the name 'input'"):
        ManifoldMixup(named, "input")
