"""weight="share:0.3": the share of the gradient that a term has, measured apart from the code that keeps it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from torch import Tensor, nn

import reglet
from reglet import backbones, methods
from reglet.engine.build import build_parts
from reglet.engine.config import from_flat
from reglet.engine.settings import Settings
from reglet.method import innermost
from reglet.schedules import Share, checked_weight, parse
from reglet.shares import EVERY, FIRST, SharedWeight
from reglet.train import fit
from reglet.types import INVARIANCE, Terms

LOSSES: dict[str, dict[str, Any]] = {
    "visreg": {"loss": reglet.VISRegLoss, "slices": 32, "lam": "share:0.3"},
    "lejepa": {"loss": reglet.LeJEPALoss, "slices": 32, "lam": "share:0.3"},
    "barlow": {"loss": reglet.BarlowTwinsLoss, "weight": "share:0.3"},
    "smi": {"loss": reglet.SMILoss, "weight": "share:0.3"},
    "vicreg": {"loss": reglet.VICRegLoss, "variance": "share:0.2", "covariance": "share:0.1"},
}


def views(seed: int = 0, n: int = 24) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 8, generator=g) @ torch.randn(8, 8, generator=g)
    return z + 0.3 * torch.randn(2, n, 8, generator=g)


def norms_of(terms: Terms, z: Tensor) -> dict[str, float]:
    return {
        name: float(torch.autograd.grad(term, z, retain_graph=True)[0].double().norm()) for name, term in terms.items()
    }


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("scale", [0.15, 0.02])
def test_a_view_loss_keeps_the_share_at_every_step(name: str, scale: float) -> None:
    given = dict(LOSSES[name])
    loss = given.pop("loss")(**given)
    for seed in range(3):
        z = (scale * views(seed)).requires_grad_()
        norms = norms_of(loss.terms(z), z)
        own = sum(norm for term, norm in norms.items() if term not in INVARIANCE)
        assert own / sum(norms.values()) == pytest.approx(0.3, rel=1e-4)
    if name == "vicreg":
        assert norms["variance"] / sum(norms.values()) == pytest.approx(0.2, rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "weight", "term"),
    [
        (reglet.MMCRLoss, "weight", "invariance"),
        (reglet.FroSSLLoss, "weight", "invariance"),
        (reglet.EMPSSLLoss, "weight", "invariance"),
        (reglet.TiCoLoss, "rho", "covariance"),
    ],
)
def test_the_share_is_of_the_term_that_the_weight_multiplies(kind: Any, weight: str, term: str) -> None:
    """Found apart from `governed`: the one term that a number as weight changes."""
    z = views().requires_grad_()
    once, twice = (kind(**{weight: number}).terms(z) for number in (1.0, 2.0))
    assert [name for name in once if once[name] != twice[name]] == [term]
    norms = norms_of(kind(**{weight: "share:0.3"}).terms(z), z)
    assert norms[term] / sum(norms.values()) == pytest.approx(0.3, rel=1e-4)


def test_a_share_of_lam_is_a_lam() -> None:
    """lam R + (1 - lam) I: the value found is the one that a number would be."""
    z = views().requires_grad_()
    found = reglet.VISRegLoss(lam="share:0.3", slices=32).terms(z)
    plain = reglet.VISRegLoss(lam=0.5, slices=32).terms(z)
    lam = (found["scale"] / plain["scale"] / 2).item()
    by_number = reglet.VISRegLoss(lam=lam, slices=32).terms(z)
    for name, term in found.items():
        torch.testing.assert_close(term, by_number[name])
    assert (found["invariance"] / plain["invariance"] / 2).item() == pytest.approx(1 - lam, rel=1e-5)


def test_without_a_graph_the_value_is_the_same() -> None:
    z = views()
    loss = reglet.BarlowTwinsLoss(weight="share:0.3")
    with torch.no_grad():
        blind = loss.terms(z)
    seen = loss.terms(z.clone().requires_grad_())
    assert not blind["redundancy"].requires_grad
    for name, term in seen.items():
        torch.testing.assert_close(blind[name], term.detach())


def test_on_two_ranks_as_on_one(tmp_path: Path) -> None:
    ranks.run("tests.test_shares:two_ranks", world=2, folder=tmp_path)


def two_ranks(rank: int, world: int) -> None:
    z = views()
    whole = reglet.BarlowTwinsLoss(weight="share:0.3").terms(z.clone().requires_grad_())
    part = z[:, rank * 12 : rank * 12 + 12].clone().requires_grad_()
    terms = reglet.BarlowTwinsLoss(weight="share:0.3", gather=True).terms(part)
    for name, term in terms.items():
        torch.testing.assert_close(term, whole[name])


class Added(nn.Module):
    """A network with a penalty whose size is off by any factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.net, self.head, self.factor = nn.Linear(6, 5), nn.Linear(5, 3), factor
        self.weight = SharedWeight("share:0.3")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.net(x)
        return self.head(y).square().mean(), self.factor * (y - 1).square().mean()


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_an_added_term_keeps_its_share_while_training(factor: float) -> None:
    torch.manual_seed(0)
    model = Added(factor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    shares = []
    for step in range(FIRST + 2 * EVERY):
        reglet.set_step(model, step)
        task, penalty = model(torch.randn(32, 6))
        weighted = model.weight(penalty, task, on=model.parameters())
        on = list(model.net.parameters())  # what both reach: the head is the task's alone
        own, rest = (
            torch.cat([g.flatten() for g in torch.autograd.grad(t, on, retain_graph=True)]).norm()
            for t in (weighted, task)
        )
        shares.append(float(own / (own + rest)))
        optimizer.zero_grad()
        (task + weighted).backward()
        optimizer.step()
    assert shares[:FIRST] == pytest.approx([0.3] * FIRST, rel=1e-4)
    assert all(0.2 < share < 0.45 for share in shares), shares
    assert model.weight.state_dict()["now_weight"] > 0, "it goes on after an interruption"


def test_a_term_without_a_gradient_waits_with_weight_zero() -> None:
    w = torch.ones(2, requires_grad=True)
    weight = SharedWeight("share:0.5")
    assert weight((w - 1).square().sum(), w.sum(), on=[w]) == 0
    assert weight.now_weight == 0
    weight((w - 2).square().sum(), w.sum(), on=[w])
    assert weight.now_weight == pytest.approx(0.5)


def test_numbers_and_schedules_stay_what_they_were() -> None:
    w = torch.ones(1, requires_grad=True)
    weight = SharedWeight("linear(0, 1, steps=11)")
    reglet.set_step(weight, 5)
    assert weight(4 * w.sum(), w.sum(), on=[w]) == 2.0
    assert SharedWeight(0.25)(4 * w.sum(), w.sum(), on=[w]) == 1.0
    assert not SharedWeight(0.25).state_dict()


SMALL = {
    "steps": 2,
    "batch": 16,
    "projector": "16-8",
    "loss.slices": 16,
    "knn_every": 0,
    "data": "digits",
    "log_every": 1,
}
NAMED: dict[str, dict[str, Any]] = {
    "sim": {"model": "resnet8", "sim": "layer1.*", "sim_weight": "share:0.2"},
    "attach": {
        "model": "convnet", "attach.0.where": "stages.1", "attach.0.loss": "sigreg", "attach.0.loss.slices": 16,
        "attach.0.weight": "share:0.2",
    },
    "ser": {
        "model": "vit_mini", "size": 16, "equivariant": "ser", "equivariant.layer": 2, "equivariant.fraction": 0.25,
        "equivariant.weight": "share:0.2",
    },
    "loss": {"model": "convnet", "loss.lam": "share:0.2"},
    "preserve features": {"model": "convnet", "preserve": "features", "preserve.weight": "share:0.2"},
    "preserve l2sp": {"model": "convnet", "preserve": "l2sp", "preserve.weight": "share:0.2"},
}  # fmt: skip
ADDED = ("sim", "equivariance", "preserve.features", "preserve.l2sp")


@pytest.mark.parametrize("name", NAMED)
def test_the_share_is_kept_during_a_training(name: str, tmp_path: Path) -> None:
    """From the words of a command to the gradient: the share of every step is measured from outside.

    A view loss has it at every step.  What is added to a network has it in the first steps, and on average afterwards:
    there the weight stays, and the gradients of a batch of 16 vary.  At the first step nothing has left the start, so
    the distance of weights has no gradient; that of features has one, by batch norm.
    """
    steps = EVERY + (2 if name == "ser" else 15)
    config = from_flat({**SMALL, **NAMED[name], "out": str(tmp_path), "method": "visreg", "steps": steps})
    parts = build_parts(config)
    seen: list[float] = []
    method = parts.method

    def look_at_embeddings(z: Sequence[Tensor], terms: Terms) -> None:
        norms = {key: _norm_on(term, z) for key, term in terms.items()}
        seen.append(1 - sum(norm for key, norm in norms.items() if key in INVARIANCE) / sum(norms.values()))

    def look_at_weights(_: nn.Module, __: Any, terms: Terms) -> None:
        own = sum(term for key, term in terms.items() if "@" in key or key in ADDED)
        rest = sum(term for key, term in terms.items() if "@" not in key and key not in ADDED)
        weights = [p for p in method.backbone.parameters() if p.requires_grad]  # type: ignore[operator, union-attr]
        grads = torch.autograd.grad(own, weights, retain_graph=True, allow_unused=True)  # type: ignore[arg-type]
        reached = [p for p, g in zip(weights, grads, strict=True) if g is not None]
        mine, others = (_norm_on(term, reached) for term in (own, rest))  # type: ignore[arg-type]
        seen.append(mine / (mine + others))

    if name == "loss":
        innermost(method).observer = look_at_embeddings  # type: ignore[assignment]
    else:
        method.register_forward_hook(look_at_weights)
    fit(method, parts.feed, config, shown=False)
    assert len(seen) == steps
    first, exact = int(name == "preserve l2sp"), steps if name == "loss" else FIRST
    assert seen[first:exact] == pytest.approx([0.2] * (exact - first), rel=1e-3)  # nothing has moved at the first step
    later = torch.tensor(seen[FIRST:])  # the weight is measured every 20 steps; between them a batch of 16 varies by 2
    assert 0.2 / 1.5 < later.mean() < 0.2 * 1.5, seen
    assert later.min() > 0.2 / 4, seen
    assert later.max() < 0.2 * 2.5, seen


def _norm_on(term: Tensor, tensors: Sequence[Tensor]) -> float:
    grads = torch.autograd.grad(term, list(tensors), retain_graph=True, allow_unused=True)
    return float(torch.cat([g.flatten() for g in grads if g is not None]).double().norm())


def test_what_cannot_be_kept_says_so() -> None:
    assert parse("share:0.3") == checked_weight("weight", "share:0.3") == Share(0.3)
    for wrong in ("share:0", "share:1", "share:x", "share:"):
        with pytest.raises(ValueError, match="a share of the gradient between 0 and 1"):
            parse(wrong)
    with pytest.raises(ValueError, match="add up to less than 1"):
        reglet.VICRegLoss(variance="share:0.6", covariance="share:0.5")(views())
    with pytest.raises(ValueError, match="all terms are shares"):
        reglet.VICReg(variance="share:0.2", covariance="share:0.2")(views())
    with pytest.raises(ValueError, match="lam is a share of the gradient, so scale"):
        reglet.VISRegLoss(lam="share:0.3", scale="share:0.1")
    with pytest.raises(ValueError, match=r"LatentDR\.degraded is a share of the gradient, which"):
        reglet.LatentDR(dim=8, degraded="share:0.3")(torch.randn(6, 8), torch.arange(6) % 2, nn.Linear(8, 2))


def test_compile_and_shares_do_not_meet(tmp_path: Path) -> None:
    method = methods.JointEmbedding(backbones.ConvNet(), reglet.BarlowTwinsLoss(weight="share:0.3"))
    parts = build_parts(from_flat({**SMALL, "out": str(tmp_path), "model": "convnet"}))
    with pytest.raises(ValueError, match="which compile=true hides"):
        fit(method, parts.feed, Settings(steps=1, batch=16, out=str(tmp_path / "a"), compile=True))


def test_the_doctor_names_the_weight() -> None:
    """Mistyped by 100 either way: within a factor of two of the weight that has the share."""
    z = views(n=256).requires_grad_()
    right = _weight_with_share(z)
    for wrong in (100 * right, right / 100):
        loss = reglet.BarlowTwinsLoss(weight=wrong)
        doctor = reglet.Doctor(every=1, grace=0)
        doctor.observe(z, terms=loss.terms(z))
        named = doctor.weights(loss, share=0.3)["weight"]
        assert right / 2 < named < right * 2
    wrong_lam = reglet.VISRegLoss(lam=0.999, slices=32)
    doctor.observe(z, terms=wrong_lam.terms(z))
    lam = doctor.weights(wrong_lam, share=0.3)["lam"]
    norms = norms_of(reglet.VISRegLoss(lam=lam, slices=32).terms(z), z)
    assert 1 - norms["invariance"] / sum(norms.values()) == pytest.approx(0.3, rel=0.05)  # slices are drawn anew


def _weight_with_share(z: Tensor) -> float:
    norms = norms_of(reglet.BarlowTwinsLoss(weight=1.0).terms(z), z)
    return 0.3 / 0.7 * norms["invariance"] / norms["redundancy"]


def test_nothing_is_measured_in_evaluation() -> None:
    weight = SharedWeight("share:0.3").eval()
    w = torch.ones(1, requires_grad=True)
    weight(w.sum(), w.sum(), on=[w])
    assert weight.now_weight == 0
