"""Domain losses against their formulas, domain by domain; IRM's penalty is unbiased."""

from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.methods.nets import DIM, Net
from torch import Tensor, nn

import reglet
from reglet.latent import BatchFormer, CrossEntropy, LatentDR
from reglet.method import Batch
from reglet.methods import Regularized
from reglet.methods.domains import (
    CORAL,
    ERM,
    IRM,
    MMD,
    DomainLoss,
    Domains,
    GroupDRO,
    OnUnion,
    VREx,
    coral,
    irm_penalty,
    mmd,
)
from reglet.schedules import linear
from reglet.types import total

WIDTH, CLASSES = 5, 3
SIZES = (4, 6, 3)


def data(*, seed: int = 0) -> tuple[list[Tensor], list[Tensor], nn.Linear]:
    """Domains of different sizes, means and spreads.  The last has no sample of class 0."""
    torch.manual_seed(seed)
    z = [(torch.randn(n, WIDTH) * (e + 1) + e).double().requires_grad_() for e, n in enumerate(SIZES)]
    y = [torch.arange(n) % CLASSES for n in SIZES]
    y[-1] = torch.tensor([1, 2, 1])
    return z, y, nn.Linear(WIDTH, CLASSES).double()


def naive_risks(z: list[Tensor], y: list[Tensor], head: Any) -> Tensor:
    return torch.stack([F.cross_entropy(head(a), b) for a, b in zip(z, y, strict=True)])


def naive_irm(logits: Tensor, y: Tensor) -> Tensor:
    """By the definition: the derivative by a scale of the logits, at 1, on the even and on the odd samples."""
    scale = torch.ones((), dtype=logits.dtype, requires_grad=True)
    halves = (F.cross_entropy(logits[k::2] * scale, y[k::2]) for k in (0, 1))
    a, b = (torch.autograd.grad(half, scale, create_graph=True)[0] for half in halves)
    return a * b


def naive_coral(a: Tensor, b: Tensor) -> Tensor:
    return (a.mean(0) - b.mean(0)).square().mean() + (torch.cov(a.T) - torch.cov(b.T)).square().mean()


def naive_mmd(a: Tensor, b: Tensor) -> Tensor:
    def k(x: Tensor, y: Tensor) -> Tensor:
        return sum((-gamma * (x - y).square().sum()).exp() for gamma in (0.001, 0.01, 0.1, 1, 10, 100, 1000))

    def mean(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([k(p, q) for p in x for q in y]).mean()

    return mean(a, a) + mean(b, b) - 2 * mean(a, b)


def pairs(z: list[Tensor], distance: Any) -> Tensor:
    return (distance(z[0], z[1]) + distance(z[0], z[2]) + distance(z[1], z[2])) / 3


CASES = {
    "erm": (lambda: ERM(), lambda z, y, g: naive_risks(z, y, g).mean()),
    "irm": (
        lambda: IRM(weight=7.0, anneal=0),
        lambda z, y, g: (
            naive_risks(z, y, g).mean() + 7 * sum(naive_irm(g(a), b) for a, b in zip(z, y, strict=True)) / 3
        ),
    ),
    "vrex": (
        lambda: VREx(weight=4.0, anneal=0),
        lambda z, y, g: (r := naive_risks(z, y, g)).mean() + 4 * ((r - r.sum() / 3) ** 2).sum() / 3,
    ),
    "coral": (lambda: CORAL(weight=0.5), lambda z, y, g: naive_risks(z, y, g).mean() + 0.5 * pairs(z, naive_coral)),
    "mmd": (lambda: MMD(weight=0.5), lambda z, y, g: naive_risks(z, y, g).mean() + 0.5 * pairs(z, naive_mmd)),
    "groupdro": (
        lambda: GroupDRO(domains=3, eta=0.3).double(),
        lambda z, y, g: ((r := naive_risks(z, y, g)) * (q := (0.3 * r.detach()).exp()) / q.sum()).sum(),
    ),
    "union": (lambda: OnUnion(CrossEntropy()), lambda z, y, g: F.cross_entropy(g(torch.cat(z)), torch.cat(y))),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_the_formula_in_value_and_gradient(name: str) -> None:
    z, y, head = data()
    build, formula = CASES[name]
    loss = build()
    assert isinstance(loss, DomainLoss)
    got, want = loss(z, y, head), formula(z, y, head)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
    grads = (torch.autograd.grad(v, [*z, *head.parameters()], retain_graph=True) for v in (got, want))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_gradcheck(name: str) -> None:
    z, y, head = data()
    loss = CASES[name][0]().eval()  # GroupDRO's weights move in training
    assert torch.autograd.gradcheck(lambda *rows: loss(list(rows), y, head), z)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"groupdro"}))
def test_the_order_of_domains_does_not_matter(name: str) -> None:
    z, y, head = data()
    loss = CASES[name][0]()
    torch.testing.assert_close(loss(z[::-1], y[::-1], head), loss(z, y, head))


def test_irm_penalty_has_no_bias() -> None:
    """The mean over all batches of four from a population of five is the population's own squared gradient.

    The square of a whole batch's gradient, the obvious estimate, is not: it is too large by the variance.
    """
    torch.manual_seed(0)
    logits, y = 2 * torch.randn(5, CLASSES).double(), torch.tensor([0, 1, 2, 0, 1])
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(F.cross_entropy(logits * scale, y), scale)
    batches = [list(batch) for batch in product(range(5), repeat=4)]
    mean = torch.stack([irm_penalty(logits[b], y[b]) for b in batches]).mean()
    torch.testing.assert_close(mean, g**2)

    biased = []
    for b in batches:
        own = torch.ones((), dtype=torch.float64, requires_grad=True)
        biased.append(torch.autograd.grad(F.cross_entropy(logits[b] * own, y[b]), own)[0] ** 2)
    assert torch.stack(biased).mean() > 1.1 * g**2


def test_irm_penalty_with_soft_labels() -> None:
    z, _, head = data()
    soft = torch.rand(SIZES[0], CLASSES).double().softmax(1)
    torch.testing.assert_close(irm_penalty(head(z[0]), soft), naive_irm(head(z[0]), soft))


def test_irm_penalty_refuses_logits_whose_gradient_would_overflow() -> None:
    """The first sample is right and the second nearly, so the penalty is 0; its gradient has products of logits."""
    logits = torch.tensor([[1e20, 0], [1e20, 9.2e19]], requires_grad=True)
    with pytest.raises(ValueError, match=r"the square of the logits overflows torch.float32 for input of up to 1e\+20"):
        irm_penalty(logits, torch.tensor([0, 1]))


@pytest.mark.parametrize(("kind", "late"), [(IRM, 100.0), (VREx, 10.0)])
def test_the_weight_waits(kind: Any, late: float) -> None:
    loss, seen = kind(anneal=3), []
    for step in range(1, 6):
        seen.append(float(loss.current))  # in force in this step
        loss.after_step(step)
    assert seen == [1.0, 1.0, 1.0, late, late]
    resumed = kind(anneal=3)
    resumed.load_state_dict(loss.state_dict())
    assert float(resumed.current) == late
    assert float(kind(anneal=0).current) == late
    assert kind().anneal == 500


@pytest.mark.parametrize("kind", [IRM, VREx, CORAL, MMD])
def test_the_weight_may_be_a_schedule(kind: Any) -> None:
    z, y, head = data()
    extra = {"anneal": 0} if kind in (IRM, VREx) else {}
    one, loss = kind(weight=1, **extra), kind(weight=linear(0, 4), **extra)
    with pytest.raises(ValueError, match=r"weight is the schedule linear\(0, 4\).*reglet\.set_step"):
        loss(z, y, head)
    for step, factor in ((0, 0.0), (3, 3.0)):
        reglet.set_step(loss, step, 5)
        want = factor * one.terms(z, y, head)["penalty"]
        torch.testing.assert_close(loss.terms(z, y, head)["penalty"], want)
    with pytest.raises(ValueError, match="weight must be finite and not negative, got nan"):
        kind(weight=float("nan"))


def test_a_schedule_waits_too() -> None:
    loss = VREx(weight=lambda step: 10 * step, before=2.0, anneal=3)
    seen = [float(loss.current)]
    for step in range(1, 6):
        loss.after_step(step)
        seen.append(float(loss.current))
    assert seen == [2.0, 2.0, 2.0, 30.0, 40.0, 50.0]


def test_latents_of_every_size_and_precision() -> None:
    """Kernels of distant samples are 0, and so is their gradient.  What would overflow is refused."""
    z = [torch.tensor([[1e30, 0.0], [0.0, 1e20]], requires_grad=True), torch.tensor([[0.0, -1e25], [1.0, 1.0]])]
    y, head = [torch.tensor([0, 1])] * 2, nn.Linear(2, 3)
    value = MMD()(z, y, head)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(z[0].grad).all()
    for loss, power in ((CORAL(), 4), (IRM(), 2), (VREx(), 2)):
        with pytest.raises(ValueError, match=rf"power {power} of the latents overflows torch.float32 .* up to 1e\+30"):
            loss(z, y, head)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        half = [torch.ones(2, 2, dtype=dtype), torch.zeros(2, 2, dtype=dtype)]
        assert torch.isfinite(CORAL()(half, y, head))
    with pytest.raises(ValueError, match=r"ERM: domain 1 must be a floating-point tensor \(_, 2\)"):
        ERM()([torch.ones(2, 2), torch.ones(2, 3)], y, head)


def test_alike_domains_cost_nothing() -> None:
    z, y, head = data()
    same = [z[0], z[0], z[0]]
    assert coral(same) == 0
    assert abs(mmd(same)) < 1e-14
    assert VREx().terms(same, [y[0]] * 3, head)["penalty"] < 1e-30
    assert coral(z) > 0.1
    assert mmd(z) > 0.01


def test_mmd_in_float32_knows_a_sample_from_itself() -> None:
    """Far from the origin, norms and a product would lose the distance of near samples at gamma = 1000."""
    torch.manual_seed(0)
    z = [100 + 0.01 * torch.randn(6, WIDTH) for _ in range(2)]
    torch.testing.assert_close(mmd(z).double(), mmd([a.double() for a in z]), rtol=1e-4, atol=0)


def test_groupdro_turns_to_the_worst_domain_and_keeps_its_weights() -> None:
    z, y, head = data()
    loss = GroupDRO(domains=3, eta=0.5)
    worst = int(naive_risks(z, y, head).argmax())
    for _ in range(30):
        loss(z, y, head)
    assert int(loss.q.argmax()) == worst
    assert loss.q[worst] > 0.9
    torch.testing.assert_close(loss.q.sum(), torch.tensor(1.0))
    kept = loss.q.clone()
    loss.eval()
    loss(z, y, head)
    assert torch.equal(loss.q, kept)
    assert "q" in loss.state_dict()
    assert GroupDRO(domains=3).eta == 0.01


def test_one_call_of_the_head() -> None:
    z, y, head = data()
    calls = []
    for build, _ in CASES.values():
        calls.clear()
        build()(z, y, lambda rows: calls.append(len(rows)) or head(rows))
        assert calls == [sum(SIZES)]


def test_bad_input() -> None:
    z, y, head = data()
    with pytest.raises(ValueError, match="ERM: latents of 3 domains, labels of 2"):
        ERM()(z, y[:2], head)
    with pytest.raises(ValueError, match=r"VREx needs at least 2 domains of 1 samples each, got \[4\]"):
        VREx()(z[:1], y[:1], head)
    with pytest.raises(ValueError, match=r"IRM needs at least 1 domains of 2 samples each, got \[4, 1\]"):
        IRM()([z[0], z[1][:1]], [y[0], y[1][:1]], head)
    with pytest.raises(ValueError, match=r"ERM needs .* got none"):
        ERM()([], [], head)
    with pytest.raises(ValueError, match=r"ERM needs .* got \[4, 0\]"):
        ERM()([z[0], z[1][:0]], [y[0], y[1][:0]], head)
    with pytest.raises(ValueError, match=r"class numbers from 0 to 2.* got values 0 to 3"):
        ERM()(z, [y[0], y[1], torch.tensor([0, 3, 1])], head)
    with pytest.raises(ValueError, match="built for 4 domains, and this batch has 3"):
        GroupDRO(domains=4)(z, y, head)


def batch(*, domain: bool = True) -> Batch:
    g = torch.Generator().manual_seed(0)
    views = [torch.randn(12, 3, 16, 16, generator=g, dtype=torch.float64) for _ in range(2)]
    return Batch(views, 2, torch.arange(12) % 3, torch.tensor([0, 2, 5] * 4) if domain else None)


def method(loss: Any) -> Domains:
    torch.manual_seed(3)
    return Domains(Net(), loss, classes=3).double()


@pytest.mark.parametrize("name", CASES)
def test_the_method_splits_by_domain(name: str) -> None:
    build, formula = CASES[name]
    m, b = method(build()), batch()
    z = m.backbone(torch.cat(list(b.views)))
    where = [b.domain.repeat(2) == d for d in (0, 2, 5)]
    y = b.labels.repeat(2)
    want = formula([z[w] for w in where], [y[w] for w in where], m.head)
    torch.testing.assert_close(total(m(b)), want, rtol=1e-6, atol=0)


@pytest.mark.parametrize("loss", [IRM(anneal=0), CORAL(), OnUnion(LatentDR(DIM)), OnUnion(BatchFormer(DIM, heads=2))])
def test_every_parameter_gets_a_gradient_and_encode_is_the_backbone(loss: Any) -> None:
    torch.manual_seed(0)
    m = method(loss)
    total(m(batch())).backward()
    for name, p in m.named_parameters():
        assert p.grad is not None, name
    assert m.backbone.patch_embed.weight.grad.any()
    x = batch().views[0]
    assert torch.equal(m.encode(x), m.backbone(x))
    assert torch.equal(m.logits(x), m.head(m.backbone(x)))


def test_without_domains_the_batch_is_one() -> None:
    m = method(OnUnion(CrossEntropy()))
    torch.testing.assert_close(total(m(batch(domain=False))), total(m(batch())))
    with pytest.raises(ValueError, match="VREx needs at least 2 domains"):
        method(VREx())(batch(domain=False))


def test_the_method_tells_the_loss_of_steps() -> None:
    m = method(IRM(anneal=2))
    m.after_step(1, 10)
    assert float(m.loss.current) == 1.0
    m.after_step(2, 10)
    assert float(m.loss.current) == 100.0


def test_latentdr_on_a_backbone_with_sim() -> None:
    torch.manual_seed(0)
    inner = Domains(Net(), OnUnion(LatentDR(DIM)), classes=3)
    views = [v.float() for v in batch().views]
    b = Batch(views, 2, batch().labels, batch().domain)
    m = Regularized(inner, "backbone.blocks.*", reglet.SIM(), weight=5e-3, example=b)
    found = m(b)
    assert set(found) == {"original", "degraded", "restored", "sim"}
    total(found).backward()
    assert all(p.grad is not None for p in m.parameters() if p.requires_grad)


def test_latentdr_on_a_frozen_encoder() -> None:
    torch.manual_seed(0)
    m = Domains(Net().requires_grad_(False), OnUnion(LatentDR(DIM)), classes=3)
    b = Batch([v.float() for v in batch().views], 2, batch().labels, batch().domain)
    total(m(b)).backward()
    assert all(p.grad is None for p in m.backbone.parameters())
    assert all(p.grad is not None for p in [*m.head.parameters(), *m.loss.parameters()])


def test_method_bad_input() -> None:
    with pytest.raises(ValueError, match="classes >= 2, got 1"):
        Domains(Net(), ERM(), classes=1)
    b = batch()
    with pytest.raises(ValueError, match="needs labels"):
        method(ERM())(Batch(b.views, 2))


def test_coral_of_two_precisions_has_no_nan_in_its_gradient() -> None:
    """The gradient of the half-precision domain is summed in float64 and cast once; infinite is right for it."""
    z = [torch.full((5, 8), 1000.0, dtype=torch.float16), 1e20 * torch.randn(5, 8, dtype=torch.float64)]
    for each in z:
        each.data += torch.arange(5).to(each)[:, None]
    leaves = [each.requires_grad_() for each in z]
    reglet.methods.domains.coral(leaves).backward()
    assert not any(each.grad is None or each.grad.isnan().any() for each in leaves)
