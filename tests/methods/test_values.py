"""Every method's loss against a formula written out in float64, sample by sample."""

import math

import pytest
import torch
from tests.methods.nets import DIM, MULTI, Net, batch, method
from torch import Tensor, nn

import reglet
from reglet.backbones import vit_small
from reglet.method import Batch, Method
from reglet.methods import BYOL, DINO, DINOHead, JointEmbedding, MoCoV3, SimSiam, Supervised, half_cosine
from reglet.methods.dino import distillation
from reglet.methods.moco import contrast
from reglet.types import total

CASES = [((16, 16), 2), (MULTI, 2), ((16, 8), 1)]


def unit(a: Tensor) -> Tensor:
    return a / a.square().sum().sqrt()


def moved(m):
    """The teacher away from its student, where swapping the two would go unnoticed."""
    torch.manual_seed(9)
    with torch.no_grad():
        for p in m.teacher.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return m


def agree(m: Method, b: Batch, want: Tensor) -> None:
    """The loss of the method, and what it asks of every parameter, against a formula."""
    trained = [p for p in m.parameters() if p.requires_grad]
    got = total(m(b))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=0)
    for mine, theirs in zip(torch.autograd.grad(got, trained), torch.autograd.grad(want, trained), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("sizes", "n_global"), CASES)
def test_moco(sizes: tuple[int, ...], n_global: int) -> None:
    m, b = moved(method("moco")), batch(5, sizes=sizes, n_global=n_global)
    q = [m.predictor(m.projector(m.backbone(x))) for x in b.views]
    k = [m.teacher.net(x) for x in b.views]
    want, tau = torch.zeros(()).double(), 0.2
    for v in range(len(sizes)):
        for g in range(n_global):
            if v == g:
                continue
            for i in range(5):
                s = torch.stack([unit(q[v][i]) @ unit(k[g][j]) / tau for j in range(5)])
                want = want + 2 * tau * (s.exp().sum().log() - s[i]) / 5
    agree(m, b, want)


@pytest.mark.parametrize(("sizes", "n_global"), CASES)
def test_dino(sizes: tuple[int, ...], n_global: int) -> None:
    m, b = moved(method("dino")), batch(5, sizes=sizes, n_global=n_global)
    m.center.normal_(generator=torch.Generator().manual_seed(0))
    m.teacher_temperature.fill_(0.05)

    def head(h: DINOHead, x: Tensor) -> Tensor:
        y = h.mlp(x)
        return torch.stack([torch.stack([unit(row) @ unit(w) for w in h.last.weight]) for row in y])

    s = [head(m.head, m.backbone(x)) for x in b.views]
    net, teacher_head = m.teacher.net
    t = [head(teacher_head, net(x)) for x in b.views]
    values = []
    for v in range(len(sizes)):
        for g in range(n_global):
            if v != g:
                for i in range(5):
                    e = ((t[g][i] - m.center) / 0.05).exp()
                    p = (s[v][i] / 0.1).exp()
                    values.append(-(e / e.sum() * (p / p.sum()).log()).sum())
    agree(m, b, torch.stack(values).mean())


@pytest.mark.parametrize(("sizes", "n_global"), CASES)
def test_byol_and_simsiam(sizes: tuple[int, ...], n_global: int) -> None:
    b = batch(5, sizes=sizes, n_global=n_global)
    pairs = [(v, g) for v in range(len(sizes)) for g in range(n_global) if v != g]
    m = moved(method("byol"))
    q = [m.predictor(m.projector(m.backbone(x))) for x in b.views]
    k = [m.teacher.net(x) for x in b.views]
    gaps = [(unit(q[v][i]) - unit(k[g][i])).square().sum() for v, g in pairs for i in range(5)]
    agree(m, b, torch.stack(gaps).sum() / 5)
    m = method("simsiam")
    z = [m.projector(m.backbone(x)) for x in b.views]
    cos = [unit(m.predictor(z[v])[i]) @ unit(z[g][i].clone().detach()) for v, g in pairs for i in range(5)]
    agree(m, b, -torch.stack(cos).mean())


def test_supervised() -> None:
    m, b = method("supervised"), batch(5, sizes=MULTI)
    values = []
    for x in b.views:
        for row, y in zip(m.head(m.backbone(x)), b.labels, strict=True):
            logp = row - row.exp().sum().log()
            values.append(-(0.9 * logp[y] + 0.1 * logp.mean()))
    agree(m, b, torch.stack(values).mean())


def test_joint_embedding_is_the_loss_of_the_embeddings() -> None:
    m, b = method("joint"), batch(5, sizes=MULTI)
    z = torch.stack([m.projector(m.backbone(x)) for x in b.views])
    want = reglet.VICRegLoss().terms(global_views=z[:2], local_views=z[2:])
    got = m(b)
    assert list(got) == list(want)
    for name in want:
        torch.testing.assert_close(got[name], want[name])


def test_batch_norm_sees_all_crops_of_a_size_together() -> None:
    torch.manual_seed(0)
    bn = nn.BatchNorm1d(DIM, affine=False)
    m = JointEmbedding(Net(), reglet.VICRegLoss(), projector=bn).double()
    b = batch(5, sizes=MULTI)
    z = m.embed(b.views)
    assert bn.num_batches_tracked == 2
    for part in (z[:2], z[2:]):
        torch.testing.assert_close(torch.cat(part).mean(0), torch.zeros(DIM).double(), atol=1e-12, rtol=0)
        assert torch.stack(part).mean(1).abs().max() > 1e-3  # but not one view by itself


LOSSES = [k for k in vars(reglet.losses).values() if isinstance(k, type) and k is not reglet.losses.WithInvariance]


@pytest.mark.parametrize("kind", LOSSES)
def test_any_view_loss_without_wiring(kind: type) -> None:
    loss = kind(slices=16) if kind.__name__.startswith(("VISReg", "SWD", "SIGReg", "LeJEPA")) else kind()
    torch.manual_seed(0)
    m = JointEmbedding(Net(), loss, projector=nn.Linear(DIM, 5)).double()
    if kind.__name__ in ("RDMReg", "RectifiedLpJEPALoss"):
        nn.init.ones_(m.projector.bias)  # a rectified embedding that is nowhere positive has no gradient
    for sizes in ((16, 16), MULTI):
        m.zero_grad()
        total(m(batch(sizes=sizes))).backward()
        assert all(p.grad is not None and p.grad.any() for p in m.parameters())


@pytest.mark.parametrize("temperature", [0.2, 0.7])
def test_moco_of_equal_embeddings(temperature: float) -> None:
    z = torch.ones(6, 4)
    both = 2 * contrast(z, z, temperature=temperature)
    assert both.item() == pytest.approx(4 * temperature * math.log(6), rel=1e-6)


def test_dino_of_uniform_outputs() -> None:
    s, t = torch.full((3, 40), 0.3), torch.full((3, 40), -2.0)
    assert distillation(s, t, torch.zeros(40)).item() == pytest.approx(math.log(40), rel=1e-6)


def test_half_cosine() -> None:
    """Values of (1 + cos(pi s)) / 2 = cos^2(pi s / 2), computed otherwise."""
    for share in (0.0, 0.1, 1 / 3, 0.5, 0.9, 1.0):
        want = 1 - (1 - 0.99) * math.cos(math.pi * share / 2) ** 2
        assert half_cosine(share, start=0.99, end=1.0) == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize("name", ["moco", "byol", "dino"])
def test_teacher_follows(name: str) -> None:
    m = moved(method(name))
    other = m.head if name == "dino" else m.projector
    student = [p.clone() for p in (*m.backbone.parameters(), *other.parameters())]
    before = [p.clone() for p in m.teacher.parameters()]
    m.after_step(5, 20)
    momentum = 1 - 0.1 * (1 + math.cos(math.pi / 4)) / 2
    for now, old, new in zip(m.teacher.parameters(), before, student, strict=True):
        torch.testing.assert_close(now, momentum * old + (1 - momentum) * new)
    kept = [p.clone() for p in m.teacher.parameters()]
    m.after_step(20, 20)
    assert all(torch.equal(a, b) for a, b in zip(kept, m.teacher.parameters(), strict=True))


def test_dino_center_and_schedules() -> None:
    m, b = moved(method("dino")), batch(5, sizes=MULTI)
    m.freeze_last = 0.3
    c = m.center.normal_(generator=torch.Generator().manual_seed(0)).clone()
    m._schedule(0.0)
    m(b)
    assert torch.equal(m.center, c)  # only after the step
    t = torch.cat([m.teacher(x) for x in b.views[:2]])
    m.after_step(1, 4)
    torch.testing.assert_close(m.center, 0.9 * c + 0.1 * t.mean(0))
    assert m.teacher_temperature.item() == pytest.approx(0.04 + 0.03 / 2, rel=1e-6)  # warm-up is half of the run
    assert m.head.last.opened == 0
    m.after_step(2, 4)
    torch.testing.assert_close(m.center, 0.9 * c + 0.1 * t.mean(0))  # nothing new was seen
    assert m.teacher_temperature.item() == pytest.approx(0.07, rel=1e-6)
    assert m.head.last.opened == 1
    m.eval()(b)
    m.after_step(3, 4)
    torch.testing.assert_close(m.center, 0.9 * c + 0.1 * t.mean(0))


def test_moco_with_its_own_heads_has_the_parameters_that_the_paper_counts() -> None:
    with torch.device("meta"):
        m = MoCoV3(vit_small(size=224), freeze="patch_embed")
    assert sum(p.numel() for p in m.parameters() if p.requires_grad) == 42_890_752  # SER's table: 42.9 M
    assert not any(p.requires_grad for p in m.teacher.parameters())


def test_clear_errors() -> None:
    b = batch(4, sizes=(16,), n_global=1)
    for name in ("moco", "dino", "byol", "simsiam"):
        with pytest.raises(ValueError, match="at least two views, one of them global; got 1 with n_global=1"):
            method(name)(b)
    with pytest.raises(ValueError, match="needs labels"):
        method("supervised")(Batch(b.views, n_global=1))
    with pytest.raises(ValueError, match="got 1 and"):
        Supervised(Net(), classes=1)
    with pytest.raises(AttributeError, match="no attribute `stem`"):
        MoCoV3(Net(), projector=nn.Identity(), predictor=nn.Identity(), freeze="stem")
    for kind in (MoCoV3, BYOL, SimSiam):
        with pytest.raises(ValueError, match="needs a predictor of your own"):
            kind(Net(), projector=nn.Identity())
    with pytest.raises(ValueError, match="temperatures must be positive"):
        DINO(Net(), out_dim=4, temperature=(0.0, 0.1))
