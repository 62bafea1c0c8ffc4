from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.latent import LatentDR
from reglet.tails import BCL, LogitAdjustment, balanced_contrast

CLASSES = 4


def data(n: int = 5, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """No sample of class 3: it is there by its prototype alone."""
    g = torch.Generator().manual_seed(seed)
    u = torch.randn(2, n, 6, generator=g, dtype=torch.float64)
    return u, torch.tensor([0, 1, 0, 2, 0])[:n], torch.randn(CLASSES, 6, generator=g, dtype=torch.float64)


def oracle(u: Tensor, y: Tensor, prototypes: Tensor, temperature: float) -> Tensor:
    """Anchor by anchor, class by class."""
    rows = [(row / row.norm(), label) for view in u for row, label in zip(view, y.tolist(), strict=True)]
    centres = [(row / row.norm(), label) for label, row in enumerate(prototypes)]
    losses = []
    for i, (anchor, label) in enumerate(rows):
        others = rows[:i] + rows[i + 1 :] + centres
        denominator = 0
        for c in range(CLASSES):
            members = [(anchor @ row / temperature).exp() for row, k in others if k == c]
            denominator = denominator + sum(members) / len(members)
        positives = [(anchor @ row / temperature) - denominator.log() for row, k in others if k == label]
        losses.append(-sum(positives) / len(positives))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equals_the_formula(temperature: float) -> None:
    u, y, prototypes = (t.requires_grad_() if t.is_floating_point() else t for t in data())
    got, want = balanced_contrast(u, y, prototypes, temperature=temperature), oracle(u, y, prototypes, temperature)
    torch.testing.assert_close(got, want)
    for a, b in zip(*(torch.autograd.grad(v, (u, prototypes)) for v in (got, want)), strict=True):
        torch.testing.assert_close(a, b)


def test_a_class_weighs_the_same_whatever_its_number() -> None:
    """Class 1 is one point.  One sample more of it adds its own anchors, and changes no other anchor's loss."""
    u, y, prototypes = data()
    u[:, 1] = prototypes[1]
    few = balanced_contrast(u, y, prototypes) * 10
    many = balanced_contrast(torch.cat([u, u[:, 1:2]], dim=1), torch.cat([y, y[1:2]]), prototypes) * 12
    rows = F.normalize(torch.cat([u.flatten(0, 1), prototypes]), dim=1)
    label = torch.cat([y, y, torch.arange(CLASSES)])
    scores = (rows[1] @ rows.T / 0.1).exp()
    own = torch.stack([scores[label == c].mean() for c in range(CLASSES)]).sum().log() - 1 / 0.1
    torch.testing.assert_close(many - few, 2 * own)


def test_terms_and_weights() -> None:
    u, y, prototypes = data()
    bcl = BCL([40, 30, 20, 10], cross_entropy=2.0, contrast=0.6, temperature=0.5)
    logits = torch.randn(5, CLASSES).double()
    found = bcl.terms(logits, y, u, prototypes)
    torch.testing.assert_close(found["cross_entropy"], 2 * LogitAdjustment([40, 30, 20, 10])(logits, y))
    torch.testing.assert_close(found["contrast"], 0.6 * oracle(u, y, prototypes, 0.5))
    torch.testing.assert_close(bcl(logits, y, u, prototypes), sum(found.values()))


def test_beside_latentdr() -> None:
    torch.manual_seed(0)
    u, y, _ = data()
    bcl, head, project = BCL([40, 30, 20, 10]), nn.Linear(6, CLASSES), nn.Linear(6, 6)
    dr = LatentDR(6, criterion=bcl)
    value = dr(u[0].float(), y, head) + bcl.contrastive(u.float(), y, project(head.weight))
    value.backward()
    assert torch.isfinite(value)
    assert project.weight.grad.any()


def test_gradcheck_and_large_similarities() -> None:
    u, y, prototypes = data()
    assert torch.autograd.gradcheck(lambda a: balanced_contrast(a, y, prototypes), u.requires_grad_())
    cold = balanced_contrast(u.float(), y, prototypes.float(), temperature=1e-3)
    assert torch.isfinite(cold)


def test_half_precision_is_widened() -> None:
    u, y, prototypes = data()
    got = balanced_contrast(u.to(torch.bfloat16), y, prototypes.to(torch.bfloat16))
    want = balanced_contrast(u.to(torch.bfloat16).float(), y, prototypes.to(torch.bfloat16).float())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda u, y, c: (u[:1], y, c), "at least two views"),
        (lambda u, y, c: (u, y, c[:2]), "5 class numbers from 0 to 1; got values 0 to 2"),
        (lambda u, y, c: (u, y - 1, c), "got values -1 to 1"),
    ],
)
def test_bad_input(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        balanced_contrast(*change(*data()))
    with pytest.raises(ValueError, match="temperature must be a positive number, got 0"):
        BCL([1, 2], temperature=0.0)
