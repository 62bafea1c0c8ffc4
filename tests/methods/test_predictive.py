"""Prediction instead of invariance: the loss is the paper's, the hidden is hidden, the future is not seen."""

from copy import deepcopy
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.methods.nets import MASKS, batch, method, mlp
from torch import Tensor, nn

import reglet
from reglet.backbones import ConvNet, Timm, ViT, vit_mini
from reglet.cli import main
from reglet.data import InMemory
from reglet.diagnostics import diagnose
from reglet.engine.build_predictive import jepa
from reglet.engine.order import VIEWS, generator
from reglet.evaluate.examine import look
from reglet.export import as_timm, load_encoder
from reglet.method import Batch
from reglet.methods import MaskedTokens, NextEmbedding, Predictive, Regularized
from reglet.methods.positions import grid_positions, line_positions
from reglet.networks.conv1d import ConvNet1d
from reglet.types import total
from reglet.views import BlockMasks, MaskedViews, Policy, View


class Frame(nn.Module):
    """Of each frame two sums, without batch norm."""

    dim = 6

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(channels, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.tanh(self.layer(x.flatten(2).mean(2)))
        return y


def sequences(
    *, detach: bool = False, actions: int = 0, regularizer: nn.Module | None = None, **changes: object
) -> Predictive:
    torch.manual_seed(3)
    net = Frame()
    own = {"frame": 4, "width": 8, "depth": 2, "heads": 2, "dropout": 0.0, **changes}
    step = NextEmbedding(6, actions=actions, projector=mlp(6, 7, 5), embedding=5, **own)
    regularizer = reglet.SIGReg(slices=16) if regularizer is None else regularizer
    return Predictive(net, regularizer, predictor=step, detach=detach).double()


def series(n: int = 6) -> Tensor:
    return torch.randn(n, 3, 22, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_loss_is_the_papers() -> None:
    """MSE of the next embedding, and 0.1 times SIGReg of each moment, averaged."""
    m, x = sequences(), series()
    step = m.predictor
    frames = [x[:, :, 4 * t : 4 * t + 4] for t in range(5)]  # two points at the end fill no frame
    z = torch.stack([step.projector(m.backbone(frame)) for frame in frames], 1)
    foretold = torch.stack([step.predict(z[:, : t + 1])[:, t] for t in range(4)], 1)
    error = sum((foretold[:, t] - z[:, t + 1]).square().sum().item() for t in range(4)) / (6 * 4 * 5)
    directions = deepcopy(m.regularizer.slices)
    terms = m(Batch([x]))
    assert list(terms) == ["prediction", "sigreg"]
    assert terms["prediction"].item() == pytest.approx(error, rel=1e-10)
    again = reglet.SIGReg(slices=16)
    again.slices = directions
    expected = 0.1 * again(z.detach().transpose(0, 1))
    torch.testing.assert_close(terms["sigreg"], expected)
    torch.testing.assert_close(m.surprise(Batch([x])).mean(), terms["prediction"])


def test_all_moments_together_are_one_batch() -> None:
    m, x = sequences(together=True), series()
    z = m.predictor.embed(m.backbone, x)
    made = m.predictor(m.backbone, Batch([x]))
    assert made.embeddings.shape == (1, 30, 5)
    torch.testing.assert_close(made.embeddings[0], z.flatten(0, 1))


@pytest.mark.parametrize("detach", [False, True])
def test_detach_stops_the_gradient_at_the_target(detach: bool) -> None:
    m, x = sequences(detach=detach), series()
    made = m.predictor(m.backbone, Batch([x]))
    made.target.retain_grad()
    m.objective(made)["prediction"].backward(retain_graph=True)
    assert (made.target.grad is None) == detach
    if detach:
        return
    torch.testing.assert_close(made.target.grad, -2 * (made.prediction - made.target) / made.target.numel())


def test_the_future_is_not_seen() -> None:
    m, x = sequences(actions=2), series()
    for p in m.predictor.parameters():
        nn.init.normal_(p, std=0.5)  # gates that are 0 would hide it
    z = m.predictor.embed(m.backbone, x)
    a = torch.randn(6, 5, 2, dtype=torch.float64)
    whole = m.predictor.predict(z, a)
    for t in range(5):
        other, act = z.clone(), a.clone()
        other[:, t + 1 :] += 1
        act[:, t + 1 :] += 1
        torch.testing.assert_close(m.predictor.predict(other, act)[:, : t + 1], whole[:, : t + 1])
        if t < 4:
            assert not torch.allclose(m.predictor.predict(other, act)[:, t + 1], whole[:, t + 1])
    act = a.clone()
    act[:, 0] += 1
    assert not torch.allclose(m.predictor.predict(z, act)[:, 0], whole[:, 0]), "an action matters"


@pytest.mark.parametrize("actions", [0, 2])
@pytest.mark.parametrize("detach", [False, True])
def test_gradients_reach_everything(actions: int, detach: bool) -> None:
    m = sequences(actions=actions, detach=detach)
    acted = torch.randn(6, 5, 2, dtype=torch.float64) if actions else None
    optimizer = torch.optim.SGD(m.parameters(), lr=0.5)
    for _ in range(3):  # the gates of actions begin at 0, and open step by step
        optimizer.zero_grad()
        total(m(Batch([series()], actions=acted))).backward()
        optimizer.step()
    for name, p in m.named_parameters():
        assert p.grad is not None, name
        assert p.grad.any(), name


def test_actions_that_begin_at_zero_change_nothing_at_first() -> None:
    m, x = sequences(actions=2), series()
    a, b = (m(Batch([x], actions=torch.randn(6, 5, 2, dtype=torch.float64)))["prediction"] for _ in range(2))
    assert torch.equal(a, b)


def test_videos_and_their_parts() -> None:
    torch.manual_seed(0)
    net = ConvNet(widths=(4, 8), depth=1)
    step = NextEmbedding(net.dim, actions=2, width=8, depth=1, heads=2)
    m = Predictive(net, reglet.VISReg(slices=8), predictor=step, weight=1.0)
    b = Batch([torch.rand(4, 3, 3, 16, 16)], actions=torch.rand(4, 3, 2))
    terms = m(b)
    assert list(terms) == ["prediction", "scale", "shape", "center"]
    part = b.take(slice(0, 2)).to(torch.device("cpu"))
    assert part.actions is not None
    assert part.actions.shape == (2, 3, 2)
    assert m.encode(torch.rand(2, 3, 16, 16)).shape == (2, 8)


@pytest.mark.parametrize(
    ("says", "x", "own"),
    [
        (
            r"takes series \(n, c, length\), because frame= is given; got \(2, 3, 3, 8, 8\)",
            (2, 3, 3, 8, 8),
            {"frame": 4},
        ),
        (r"takes videos \(n, t, c, h, w\); got \(2, 3, 40\)", (2, 3, 40), {"frame": 0}),
        (r"needs at least 2 frames, and \(2, 3, 7\) has 1 of 4 points", (2, 3, 7), {"frame": 4}),
        (r"actions=2: a batch has actions of shape \(2, 10, 2\), got none", (2, 3, 40), {"frame": 4, "actions": 2}),
    ],
)
def test_bad_sequences(says: str, x: tuple[int, ...], own: dict) -> None:
    with pytest.raises(ValueError, match=says):
        sequences(**own)(Batch([torch.zeros(x, dtype=torch.float64)]))


def test_bad_parts() -> None:
    with pytest.raises(ValueError, match="VISRegLoss compares several"):
        Predictive(Frame(), reglet.VISRegLoss(), predictor=nn.Identity())
    with pytest.raises(ValueError, match="width=10 is not divisible by heads=4"):
        NextEmbedding(6, width=10, heads=4)
    with pytest.raises(ValueError, match="comes with embedding="):
        NextEmbedding(6, projector=nn.Identity())
    with pytest.raises(ValueError, match="comes with embedding="):
        MaskedTokens(6, masks=MASKS, embedding=4)
    with pytest.raises(ValueError, match="multiple of heads=3 and of 4, got 14"):
        MaskedTokens(6, masks=MASKS, width=14, heads=3)
    with pytest.raises(ValueError, match="must be even"):
        line_positions(3, width=3)
    with pytest.raises(ValueError, match="multiple of 4"):
        grid_positions((2, 2), width=6)


class Norms(nn.Module):
    """A regularizer that knows nothing of views."""

    def forward(self, z: Tensor) -> Tensor:
        assert z.ndim == 2
        return z.square().mean()


def test_any_regularizer_of_rows() -> None:
    m = sequences(regularizer=Norms())
    terms = m(Batch([series()]))
    z = m.predictor.embed(m.backbone, series())
    torch.testing.assert_close(terms["norms"], 0.1 * z.square().mean())


def every_regularizer() -> list[str]:
    from reglet.engine.attachments import ONE_PLACE

    return list(ONE_PLACE)


@pytest.mark.parametrize("name", every_regularizer())
def test_every_regularizer_by_name(name: str) -> None:
    from reglet.engine.attachments import ONE_PLACE

    m = sequences(regularizer=ONE_PLACE[name]())
    terms = m(Batch([series(8)]))
    total(terms).backward()
    assert all(torch.isfinite(term) for term in terms.values())
    assert m.backbone.layer.weight.grad.any()


def test_without_a_regularizer_it_collapses_and_with_one_it_does_not() -> None:
    spread = {}
    for name, weight in (("none", 0.0), ("visreg", 1.0)):
        m = sequences(regularizer=reglet.VISReg(slices=16), together=True)
        m.balance.weight = weight
        optimizer = torch.optim.Adam(m.parameters(), lr=2e-2)
        x = series(32)
        for _ in range(60):
            optimizer.zero_grad()
            total(m(Batch([x]))).backward()
            optimizer.step()
        spread[name] = m.predictor.embed(m.backbone, x).flatten(0, 1).std(0).mean().item()
    assert spread["none"] < 0.3 * spread["visreg"]


def test_a_share_of_the_gradient() -> None:
    m = sequences()
    m.balance = type(m.balance)("share:0.5").double()
    terms = m(Batch([series()]))
    own = list(m.backbone.parameters())
    norms = [
        torch.cat([g.flatten() for g in torch.autograd.grad(term, own, retain_graph=True)]).norm()
        for term in terms.values()
    ]
    torch.testing.assert_close(norms[0], norms[1])


# Of images: what is hidden is hidden.


def test_all_patches_in_view_are_all_tokens() -> None:
    vit, x = vit_mini(size=16, cls_layer=None).eval(), torch.rand(2, 3, 16, 24)
    tokens, grid = vit.tokens(x)
    torch.testing.assert_close(vit.visible(x, torch.arange(24).expand(2, -1)), tokens)
    assert grid == (4, 6)
    with pytest.raises(TypeError, match="cls_layer=None"):
        vit_mini(size=16).visible(x, torch.arange(16).expand(2, -1))


def test_the_loss_of_masked_tokens() -> None:
    m, b = method("predictive"), batch()
    x, masks = b.views[0], b.draws[0].masks
    step = m.predictor
    z = step.projector(m.backbone.tokens(x)[0])
    context = m.backbone.visible(x, masks.context)
    error, count = 0.0, 0
    for i in range(len(x)):
        for block in masks.targets[i]:
            places = torch.cat([masks.context[i], block])
            seen = step.enter(context[i])
            y = torch.cat([seen, step.mask.expand(len(block), -1)]) + grid_positions((4, 4), width=8)[places]
            foretold = step.leave(step.norm(step.blocks(y[None])))[0, len(seen) :]
            error += (foretold - z[i, block]).square().sum().item()
            count += foretold.numel()
    terms = m(b)
    assert terms["prediction"].item() == pytest.approx(error / count, rel=1e-6)  # positions are float32
    torch.testing.assert_close(terms["center"], z.detach().mean(0).square().mean())


def test_what_is_hidden_does_not_help_the_prediction() -> None:
    m, b = method("predictive"), batch()
    masks = b.draws[0].masks
    before = m.predictor(m.backbone, b)
    x = b.views[0].clone()
    for i in range(len(x)):
        hidden = sorted(set(range(16)) - set(masks.context[i].tolist()))
        for place in hidden:
            row, column = divmod(place, 4)
            x[i, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 3
    after = m.predictor(m.backbone, Batch([x], draws=b.draws))
    torch.testing.assert_close(after.prediction, before.prediction)
    assert not torch.allclose(after.target, before.target)


def test_masks_come_with_the_batch_or_are_drawn() -> None:
    m, b = method("predictive"), batch()
    assert torch.equal(m(b)["prediction"], m(b)["prediction"])
    alone = Batch(b.views)
    torch.manual_seed(0)
    first = m(alone)["prediction"]
    torch.manual_seed(0)
    assert torch.equal(m(alone)["prediction"], first)
    assert not torch.equal(m(alone)["prediction"], first)
    with pytest.raises(ValueError, match=r"MaskedViews\(policy, masks\); these views have a Draw"):
        m(Batch(b.views, draws=[draw.view for draw in b.draws]))
    with pytest.raises(ValueError, match=r"a grid of \(4, 4\) patches, the images have \(2, 2\)"):
        m(Batch([b.views[0][:, :, :8, :8]], draws=b.draws))
    with pytest.raises(TypeError, match="of a ViT; got ConvNet"):
        Predictive(ConvNet(), reglet.VISReg(), predictor=m.predictor)(Batch([torch.rand(2, 3, 16, 16)]))


def test_losses_may_be_attached_beside_it() -> None:
    torch.manual_seed(0)
    vit = ViT(dim=16, depth=2, heads=2, size=16, patch=4, cls_layer=None)
    hidden = MaskedTokens(16, masks=BlockMasks((4, 4), targets=1, least=2), width=8, depth=1, heads=2)
    m = Predictive(vit, reglet.VISReg(slices=8), predictor=hidden, weight=1.0)
    x = torch.rand(4, 3, 16, 16)
    both = Regularized(m, "backbone.blocks.*", reglet.SIM(), weight=5e-3, example=x)
    terms = both(Batch([x]))
    assert list(terms) == ["prediction", "scale", "shape", "center", "sim"]
    total(terms).backward()
    assert all(p.grad is not None for p in both.parameters())


def test_positions() -> None:
    p = grid_positions((3, 5), width=16)
    assert torch.equal(p[:5, :8], p[0, :8].expand(5, -1)), "a row has one half"
    assert torch.equal(p[::5, 8:], p[0, 8:].expand(3, -1)), "a column has the other"
    assert len(torch.unique(p, dim=0)) == 15
    angle = 7.0 * 10_000 ** (-1 / 4)
    assert line_positions(8, width=8)[7, [1, 5]].tolist() == pytest.approx(
        [torch.tensor(angle).sin().item(), torch.tensor(angle).cos().item()], rel=1e-5
    )


def test_series_of_the_task_fit() -> None:
    net = ConvNet1d(channels=4)
    step = NextEmbedding(net.dim, frame=8, width=16, depth=1, heads=2)
    terms = Predictive(net, reglet.SIGReg(slices=8), predictor=step)(Batch([torch.randn(5, 4, 64)]))
    assert terms["prediction"] > 0


@pytest.mark.parametrize("name", ["test_vit", "test_vit2"])
def test_a_vit_of_timm_sees_parts(name: str, timm: ModuleType) -> None:
    """All places in another order are all tokens in that order; what is hidden is not seen; all learns."""
    torch.manual_seed(0)
    net = Timm(name, size=32, mean=True).eval()
    x = torch.randn(3, 3, 32, 32)
    tokens, grid = net.tokens(x)
    torch.testing.assert_close(net(x), tokens.mean(1))
    order = torch.randperm(tokens.shape[1]).expand(3, -1)
    torch.testing.assert_close(net.visible(x, order), tokens[:, order[0]], rtol=1e-4, atol=1e-5)
    places = torch.tensor([0, 3]).expand(3, -1)
    other = x.clone()
    other[:, :, : 32 // grid[0], 32 // grid[1] : 2 * 32 // grid[1]] += 1  # patch 1
    torch.testing.assert_close(net.visible(other, places), net.visible(x, places))
    assert not torch.allclose(net.tokens(other)[0][:, places[0]], tokens[:, places[0]])
    m = jepa(net, reglet.VISReg(slices=8), targets=1, least=2).train()
    total(m(Batch([x]))).backward()
    assert all(p.grad is not None for p in m.parameters())


def test_which_of_timms_networks_do_not(timm: ModuleType) -> None:
    with pytest.raises(TypeError, match="resnet18 is no ViT whose patch tokens could be averaged"):
        Timm("resnet18", size=32, mean=True)
    with pytest.raises(TypeError, match=r"say model\.cls_layer=none"):
        jepa(Timm("test_vit", size=32), reglet.VISReg())
    mixer = Timm("test_convnext", size=32)
    with pytest.raises(TypeError, match="is a ConvNeXt: only a VisionTransformer can be shown some"):
        mixer.visible(torch.zeros(1, 3, 32, 32), torch.zeros(1, 1, dtype=torch.long))
    with pytest.raises(TypeError, match=r"give a ViT of reglet or of timm, such as .* got ConvNet"):
        jepa(ConvNet(), reglet.VISReg())


def test_a_vit_of_timm_by_name(timm: ModuleType, tmp_path: Path) -> None:
    """From the command line to an encoder that timm builds, whose features are the mean of its patch tokens."""
    words = ["data=digits", "labels=60", "model=timm/test_vit", "size=64", "method=jepa", "loss.slices=8", "batch=16"]
    words += ["steps=2", "micro_batch=6", "knn_every=0", "method.targets=1", "method.least=2", "accelerator=cpu"]
    assert main(["pretrain", *words, f"out={tmp_path}"]) == 0
    assert main(["export", f"run={tmp_path}"]) == 0  # which loads it again by the code on the card
    net = load_encoder(tmp_path)[0]
    (name, made), x = as_timm(net), torch.rand(2, 3, 64, 64)
    theirs = timm.create_model(name, num_classes=0, **made)
    theirs.load_state_dict(net.model.state_dict())
    torch.testing.assert_close(theirs.eval()(x), net.eval()(x))
    torch.testing.assert_close(net(x), net.tokens(x)[0].mean(1))


@pytest.mark.parametrize(("weight", "name"), [(1.0, ""), (1e-9, "negligible regularizer"), (1e6, "overwhelming")])
def test_the_doctor_sees_the_share_of_the_regularizer(weight: float, name: str) -> None:
    """On the weights of the encoder, of the views and masks that training draws."""
    torch.manual_seed(0)
    vit = ViT(dim=12, depth=1, heads=2, size=16, patch=4, cls_layer=None)
    m = jepa(vit, reglet.VICReg(), projector=mlp(12, 7, 5), embedding=5, weight=weight, width=8, targets=1, least=2)
    policy = MaskedViews(Policy((View(16),), n_global=1), m.predictor.masks)
    pixels = torch.randint(256, (24, 3, 16, 16), dtype=torch.uint8)
    found = look(m, InMemory(pixels, name="noise"), policy, features=torch.randn(24, 12), batch=16)
    draws = policy.draw(16, generator(0, VIEWS, 1))
    terms = m.eval()(Batch(policy.apply(pixels[:16], draws), draws=draws))
    for term, value in terms.items():
        grads = torch.autograd.grad(value, list(vit.parameters()), retain_graph=True, allow_unused=True)
        norm = torch.stack([g.norm() for g in grads if g is not None]).norm().item()
        assert found.gradients[term] == pytest.approx(norm, rel=1e-4), term
    said = [finding.name for finding in diagnose(found).findings]
    assert any(each.startswith(name) for each in said) if name else not any("regularizer" in each for each in said)
