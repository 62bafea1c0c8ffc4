"""What a network is held to: values and gradients by hand in float64, who learns and who does not, copies."""

from copy import deepcopy

import pytest
import torch
from tests.methods.nets import MULTI, Net, batch, method, mlp
from torch import Tensor, nn

import reglet
from reglet.backbones import vit_mini
from reglet.method import Batch
from reglet.methods import JointEmbedding, Partly, Preserved, Regularized
from reglet.types import Terms, total

ALL = ["features", "gram", "l2sp"]


def moved(keep: list[str], **more: object) -> Preserved:
    """With a backbone that has left its start, in double precision."""
    m = Preserved(method("joint"), keep, **{"weight": 1.0, **more}).double()  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in m.backbone.parameters():
            p += 0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return m


def maps(net: nn.Module, x: Tensor) -> Tensor:
    """Tokens of the last block, (n, t, d)."""
    return net.blocks(net.patch_embed(x)).flatten(2).transpose(1, 2)  # type: ignore[operator]


def by_hand(kind: str, distance: str, now: nn.Module, start: nn.Module, b: Batch) -> Tensor:
    """From the formulas, on one size of views after the other."""
    if kind == "l2sp":
        pairs = zip(now.parameters(), start.parameters(), strict=True)
        return 0.5 * sum(((p - q) ** 2).sum() for p, q in pairs)
    values = []
    for size in dict.fromkeys(v.shape[-1] for v in b.views):
        x = torch.cat([v for v in b.views if v.shape[-1] == size])
        if kind == "gram":
            z, u = maps(now, x), maps(start, x).detach()
            z, u = (t / t.norm(dim=-1, keepdim=True) for t in (z, u))
            values.append(torch.stack([(a @ a.T - c @ c.T).square().mean() for a, c in zip(z, u, strict=True)]).mean())
            continue
        z, u = maps(now, x).mean(1), maps(start, x).mean(1).detach()
        if distance == "l2":
            values.append(((z - u) ** 2).mean())
        else:
            cosine = [(a @ c) / (a.norm() * c.norm()) for a, c in zip(z, u, strict=True)]
            values.append(1 - torch.stack(cosine).mean())
    return torch.stack(values).mean()


@pytest.mark.parametrize(
    ("kind", "distance"), [("features", "cosine"), ("features", "l2"), ("gram", "l2"), ("l2sp", "l2")]
)
def test_value_and_gradient_are_those_of_the_formula(kind: str, distance: str) -> None:
    m, b = moved([kind], weight=0.7, distance=distance), batch(sizes=MULTI)
    term = m(b)[f"preserve.{kind}"]
    expected = 0.7 * by_hand(kind, distance, m.backbone, m.start, b)
    torch.testing.assert_close(term, expected, rtol=1e-10, atol=1e-14)
    assert term > 1e-4
    weights = list(m.backbone.parameters())
    ours, theirs = (torch.autograd.grad(t, weights) for t in (term, expected))
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-8, atol=1e-12)


def test_nothing_is_lost_at_the_start() -> None:
    m = Preserved(method("joint"), ALL, weight=1.0).double()
    terms = m(batch(sizes=MULTI))
    assert all(terms[f"preserve.{kind}"].detach().abs() < 1e-14 for kind in ALL)


def train(m: Preserved, steps: int, first: int = 0) -> Terms:
    optimizer = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.2)
    m.train()
    for step in range(first, steps):
        optimizer.zero_grad()
        terms = m(batch(sizes=MULTI, seed=step))
        total(terms).backward()
        optimizer.step()
    return terms


def test_the_start_stays_and_the_method_learns() -> None:
    m = Preserved(method("joint"), ALL, weight="share:0.2").double()
    before = deepcopy(m.state_dict())
    train(m, 4)
    after = m.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in after if key.startswith("start."))
    assert any(not torch.equal(before[key], after[key]) for key in after if key.startswith("method.backbone."))
    assert not any(p.requires_grad for p in m.start.parameters())
    assert all(p.grad is None for p in m.start.parameters())
    assert not any(module.training for module in m.start.modules())


def test_it_goes_on_from_a_state_dict_and_in_a_copy() -> None:
    m, other = (Preserved(method("joint"), ALL, weight="share:0.2").double() for _ in range(2))
    train(m, 3)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()  # nothing of its own start is left
    other.load_state_dict(m.state_dict())
    copy = deepcopy(m)
    for each in (m, other, copy):
        reglet.set_step(each, 40, 100)  # at which the shares are measured
        train(each, 6, first=3)
    for key, value in m.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key
        assert torch.equal(value, copy.state_dict()[key]), key


def test_it_keeps_what_it_holds() -> None:
    """The more it weighs, the nearer the end is to the start."""
    far = []
    for weight in (0.0, 1.0, 100.0):
        m = Preserved(method("joint"), ["l2sp"], weight=weight).double()
        optimizer = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.01)
        for step in range(30):
            optimizer.zero_grad()
            total(m(batch(seed=step))).backward()
            optimizer.step()
        far.append(float(m.moved().detach()))
    assert far[0] > 1.2 * far[1] > 5 * far[2] > 0


def test_a_share_of_the_gradient_is_what_it_says() -> None:
    m, b = moved(["features"], weight="share:0.25"), batch()
    terms = m.train()(b)
    weights = list(m.backbone.parameters())

    def norm(term: Tensor) -> float:
        grads = torch.autograd.grad(term, weights, retain_graph=True)
        return float(torch.cat([g.flatten() for g in grads]).norm())

    own = norm(terms["preserve.features"])
    rest = norm(sum(value for name, value in terms.items() if name != "preserve.features"))
    assert own / (own + rest) == pytest.approx(0.25, rel=1e-4)


def test_a_vit_is_held_by_its_class_token_and_the_tokens_of_patches() -> None:
    torch.manual_seed(0)
    net = vit_mini(size=16)
    m = Preserved(JointEmbedding(net, reglet.VICRegLoss(), projector=mlp(192, 8, 4)), ["class", "gram"], weight=1.0)
    with torch.no_grad():
        net.blocks[-1].mlp.fc2.weight += 0.02 * torch.randn_like(net.blocks[-1].mlp.fc2.weight)
    x = torch.randn(4, 3, 16, 16)
    terms = m(Batch([x, x], n_global=2))
    y, u = ([] for _ in range(2))
    for found, vit in ((y, net), (u, m.start)):
        handle = vit.blocks[-1].register_forward_hook(lambda _m, _a, out, found=found: found.append(out))
        vit(torch.cat([x, x]))
        handle.remove()
    cosine = nn.functional.cosine_similarity(y[0][:, 0], u[0][:, 0]).mean()
    torch.testing.assert_close(terms["preserve.class"], 1 - cosine, rtol=1e-4, atol=1e-6)
    a, c = (nn.functional.normalize(t[0][:, 1:], dim=-1) for t in (y, u))
    torch.testing.assert_close(terms["preserve.gram"], (a @ a.mT - c @ c.mT).square().mean(), rtol=1e-3, atol=1e-9)
    assert terms["preserve.gram"] > 0


def test_it_composes_with_other_wrappers() -> None:
    inner, b = Preserved(method("joint").float(), ["features"], weight=1.0), batch()
    views = [v.float() for v in b.views]
    outer = Regularized(inner, "backbone.blocks.*", reglet.SIM(), weight=0.1, example=views[0])
    terms = Partly(Preserved(outer, ["l2sp"], weight=1.0), heads_first=3)(Batch(views, n_global=2))
    assert {"preserve.features", "preserve.l2sp", "sim", "variance"} <= terms.keys()


def test_bad_input_says_what_was_wanted() -> None:
    with pytest.raises(ValueError, match="keep must be one of features, class, gram, l2sp"):
        Preserved(method("joint"), ["weights"], weight=1.0)
    with pytest.raises(ValueError, match="each once"):
        Preserved(method("joint"), ["gram", "gram"], weight=1.0)
    with pytest.raises(ValueError, match="no weight is given for gram"):
        Preserved(method("joint"), ["l2sp", "gram"], weight={"l2sp": 1.0})
    with pytest.raises(ValueError, match="has no class token"):
        Preserved(method("joint"), ["class"], weight=1.0)
    with pytest.raises(LookupError, match=r"blocks\.9"):
        Preserved(method("joint"), ["gram"], weight=1.0, block="blocks.9")
    with pytest.raises(ValueError, match="a method that predicts reads tokens of masked images"):
        Preserved(method("predictive"), ["features", "l2sp"], weight=1.0)
    frozen = method("joint")
    frozen.backbone.requires_grad_(False)
    with pytest.raises(ValueError, match="no weight of the start is trained"):
        Preserved(frozen, ["l2sp"], weight=1.0)


def test_the_net_of_these_tests_has_two_blocks() -> None:
    assert Preserved(method("joint"), ["gram"], weight=1.0).block == "blocks.1"
    assert isinstance(method("joint").backbone, Net)
