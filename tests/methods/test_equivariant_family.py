"""AugSelf, EquiMod, STL and E-SSL: what they predict, where it goes, around any method."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.methods.equivariant_nets import N, base, vit
from torch import Tensor

from reglet.method import Batch, Method
from reglet.methods.augself import AugSelf, differences
from reglet.methods.equimod import EquiMod, parameters_of
from reglet.methods.essl import ESSL
from reglet.methods.moco import contrast
from reglet.methods.stl import STL, PartnerViews
from reglet.types import total
from reglet.views import Blur, ColorJitter, Draw, Policy, ResizedCrop, View, policy

NAMES = ("augself", "equimod", "stl", "essl")


def views(name: str) -> Policy | PartnerViews:
    view = View(16, ResizedCrop((0.3, 0.8)), flip=0.5, jitter=ColorJitter(), gray=0.2, blur=Blur(3), solarize=0.3)
    extra = {"equimod": policy("plain", size=16).views[0], "essl": View(8, ResizedCrop((0.05, 0.14)))}
    two = Policy((view, view, *([extra[name]] if name in extra else [])), n_global=2)
    return PartnerViews(two) if name == "stl" else two


def batch(name: str, n: int = N, *, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    made = views(name)
    draws = made.draw(n, g)
    images = torch.rand(n, 3, 20, 20, generator=g)
    return Batch([x.double() for x in made.apply(images, draws)], n_global=2, draws=draws)


def wrapped(name: str, around: str = "vicreg", **options) -> Method:
    torch.manual_seed(6)
    inner = base(around)
    made = {
        "augself": lambda: AugSelf(inner, hidden=9, **options),
        "equimod": lambda: EquiMod(inner, width=6, **options),
        "stl": lambda: STL(inner, width=6, **options),
        "essl": lambda: ESSL(inner, **options),
    }
    return made[name]().double()


TERMS = {
    "augself": ["augself_crop", "augself_color"],
    "equimod": ["equimod"],
    "stl": ["stl_equivariance", "stl_transformation"],
    "essl": ["rotation"],
}


@pytest.mark.parametrize("around", ["vicreg", "moco", "dino"])
@pytest.mark.parametrize("name", NAMES)
def test_terms_are_the_bases_and_their_own(name: str, around: str) -> None:
    m, b = wrapped(name, around), batch(name)
    terms = m(b)
    seen = replace(b, views=b.views[:2])
    plain = base(around)(seen)
    assert list(terms) == [*plain, *TERMS[name]]
    for key, value in plain.items():
        torch.testing.assert_close(terms[key], value, rtol=1e-12, atol=0)
    total(terms).backward()
    for path, p in m.named_parameters():
        if "teacher" not in path:
            assert p.grad is not None and p.grad.any(), path  # noqa: PT018
    assert torch.equal(m.encode(b.views[0]), m.backbone(b.views[0]))
    assert not any(len(p._forward_hooks) + len(p._forward_pre_hooks) for p in m.backbone.modules())


@pytest.mark.parametrize("name", NAMES)
def test_at_an_intermediate_layer_nothing_after_it_is_trained(name: str) -> None:
    m = wrapped(name, layer=1)
    terms = m(batch(name))
    total({key: terms[key] for key in TERMS[name]}).backward()
    own = [p for path, p in m.named_parameters() if not path.startswith("method.")]
    assert own
    assert all(p.grad is not None and p.grad.any() for p in own)
    for path, p in m.method.named_parameters():
        early = path.startswith(("backbone.patch_embed", "backbone.pos_embed", "backbone.blocks.0."))
        assert (p.grad is not None) == early, path


def draw_of(**given: list) -> Draw:
    n = len(next(iter(given.values())))
    values = {
        "crop": [[0.0, 0.0, 1.0, 1.0]] * n,
        "flip": [False] * n,
        "angle": [0.0] * n,
        "turn": [0] * n,
        "jitter": [True] * n,
        "factors": [[1.0, 1.0, 1.0, 0.0]] * n,
        "order": [[0, 1, 2, 3]] * n,
        "gray": [False] * n,
        "sigma": [0.0] * n,
        "solarize": [False] * n,
    } | given
    return Draw(**{key: torch.tensor(value) for key, value in values.items()})


def test_augself_predicts_differences_in_the_frame_of_the_first_view() -> None:
    # a box of half the side in the upper left corner, and one of the whole height at the right
    a = draw_of(crop=[[0.0, 0.0, 0.5, 0.5]] * 2, flip=[False, True], turn=[3, 1], sigma=[2.0, 0.0])
    b = draw_of(crop=[[0.0, 1.0, 1.0, 0.5]] * 2, flip=[False, False], turn=[0, 2], solarize=[True, False])
    d = differences(a, b, jitter=ColorJitter(), sigma=2.0)
    # centres (y, x): (1/4, 1/4) and (1/2, 3/4); mirrored by the flip of view 1: x 3/4 and 1/4
    torch.testing.assert_close(d["crop"], torch.tensor([[-0.25, -0.5, -0.5, 0.0], [-0.25, 0.5, -0.5, 0.0]]))
    assert d["flip"].tolist() == [[1.0], [0.0]]
    assert d["rotation"].tolist() == [3, 3]
    assert d["blur"].tolist() == [[1.0], [0.0]]
    assert d["solarize"].tolist() == [[-1.0], [0.0]]


def test_augself_colours_are_relative_to_their_range_and_none_where_none_was_applied() -> None:
    a = draw_of(factors=[[1.4, 0.6, 1.2, -0.1]] * 2, jitter=[True, False])
    b = draw_of(factors=[[1.0, 1.0, 0.8, 0.1]] * 2)
    d = differences(a, b, jitter=ColorJitter(0.4, 0.4, 0.2, 0.1), sigma=2.0)["color"]
    torch.testing.assert_close(d, torch.tensor([[0.5, -0.5, 1.0, -1.0], [0.0, 0.0, 0.5, -0.5]]))


def test_augself_losses_by_hand() -> None:
    m, b = wrapped("augself", crop=0.5, color=0.0, flip=2.0, rotation=1.0), batch("augself")
    m.eval()  # batch norm by its averages, so that both orders can be predicted apart
    terms = m(b)
    assert list(terms)[-3:] == ["augself_crop", "augself_flip", "augself_rotation"]
    h = [m.backbone(x) for x in b.views]
    losses: dict[str, list[Tensor]] = {"crop": [], "flip": [], "rotation": []}
    for i, j in ((0, 1), (1, 0)):
        pair = torch.cat([h[i], h[j]], 1)
        d = differences(b.draws[i], b.draws[j], jitter=ColorJitter(), sigma=2.0)
        losses["crop"].append((m.predictors["crop"](pair).tanh() - d["crop"]).square().mean())
        odds = torch.sigmoid(m.predictors["flip"](pair))
        agree = (b.draws[0].flip == b.draws[1].flip)[:, None]
        losses["flip"].append(-torch.where(agree, odds, 1 - odds).log().mean())
        losses["rotation"].append(F.cross_entropy(m.predictors["rotation"](pair), d["rotation"]))
    for kind, weight in (("crop", 0.5), ("flip", 2.0), ("rotation", 1.0)):
        torch.testing.assert_close(
            terms[f"augself_{kind}"], weight * sum(losses[kind]) / 2, rtol=1e-6, atol=0
        )  # targets are float32


def test_equimod_knows_eighteen_parameters() -> None:
    a = draw_of(crop=[[0.1, 0.2, 0.3, 0.4]], flip=[True], order=[[3, 0, 1, 2]], factors=[[1.1, 0.9, 1.2, 0.05]])
    expected = [0.1, 0.2, 0.3, 0.4, 1, 1, 1, 0, 1 / 3, 2 / 3, 1.1, 0.9, 1.2, 0.05, 0, 0, 0, 0]
    torch.testing.assert_close(parameters_of(a), torch.tensor([expected]))


def test_equimod_by_hand() -> None:
    m, b = wrapped("equimod", weight=3.0), batch("equimod")
    m.eval()
    value = m(b)["equimod"]
    h = [m.projector(m.backbone(x)) for x in b.views]
    losses = []
    for t in (0, 1):
        done = m.parameter_layer(parameters_of(b.draws[t]).double())
        rows = F.normalize(torch.cat([h[t], m.predictor(torch.cat([h[2], done], 1))]), dim=1)
        s = (rows @ rows.T / 0.2).fill_diagonal_(-torch.inf)
        losses.append(F.cross_entropy(s, (torch.arange(2 * N) + N) % (2 * N)))
    torch.testing.assert_close(value, 3 * sum(losses) / 2)


def test_stl_by_hand() -> None:
    m, b = wrapped("stl"), batch("stl", 7)
    m.eval()
    terms = m(b)
    h1, h2 = (m.backbone(x)[:6] for x in b.views)
    t12, t21 = (m.transform(torch.cat(pair, 1)) for pair in ((h1, h2), (h2, h1)))

    def moved(h: Tensor, t: Tensor) -> Tensor:
        return torch.stack([m.matrix(t[i ^ 1]).view(8, 8) @ h[i] for i in range(6)])

    equi = contrast(moved(h2, t21), h1) + contrast(moved(h1, t12), h2)
    trans = [contrast(t[k::2], t[1 - k :: 2]) for t in (t12, t21) for k in (0, 1)]
    torch.testing.assert_close(terms["stl_equivariance"], equi / 2)
    torch.testing.assert_close(terms["stl_transformation"], 0.1 * sum(trans) / 4)


def test_partners_share_their_draws() -> None:
    draws = PartnerViews(views("augself")).draw(5, torch.Generator().manual_seed(0))
    for draw in draws:
        assert torch.equal(draw.crop[0:4:2], draw.crop[1:4:2])
        assert torch.equal(draw.factors[0:4:2], draw.factors[1:4:2])
        assert not torch.equal(draw.crop[0], draw.crop[2])
        assert len(draw) == 5
    assert not torch.equal(draws[0].crop, draws[1].crop)


def test_essl_by_hand() -> None:
    m, b = wrapped("essl", weight=2.0), batch("essl")
    value = m(b)["rotation"]
    x = b.views[2]
    losses = [F.cross_entropy(m.head(m.backbone(torch.rot90(x, k, (2, 3)))), torch.full((N,), k)) for k in range(4)]
    torch.testing.assert_close(value, 2 * sum(losses) / 4)
    parameters = sum(p.numel() for p in ESSL(base("vicreg", vit())).head.parameters())
    assert parameters == 2 * (64 + 8 + 16) + 8 * 256 + 256 + 512 + 256 * 4 + 4


def test_features_of_a_layer_are_the_mean_of_its_patch_tokens() -> None:
    m, b = wrapped("essl", layer=3), batch("essl")  # [CLS] joined before the third block, and is left out
    kept: list[Tensor] = []
    handle = m.backbone.blocks[2].register_forward_hook(lambda _, __, y: kept.append(y))
    m.backbone(b.views[0])
    handle.remove()
    assert kept[0].shape[1] == 17
    torch.testing.assert_close(m.reader(m.backbone, b.views[0]), kept[0][:, 1:].mean(1))


def test_bad_input() -> None:
    for name in ("augself", "equimod", "stl"):
        with pytest.raises(ValueError, match="and this batch has no draws"):
            wrapped(name)(replace(batch(name), draws=None))
    for name in ("equimod", "essl"):
        two = batch(name)
        with pytest.raises(ValueError, match="expected one more than the 2 global views of its base, got 2"):
            wrapped(name)(replace(two, views=two.views[:2], draws=two.draws[:2]))
    b = batch("equimod")
    with pytest.raises(ValueError, match="a last view without augmentation, and this one has crop"):
        wrapped("equimod")(replace(b, draws=[b.draws[0]] * 3))
    with pytest.raises(ValueError, match=r"their crop differs. Make views by PartnerViews"):
        wrapped("stl")(batch("augself"))
    with pytest.raises(ValueError, match="at least 4 images are needed, got 3"):
        wrapped("stl")(batch("stl", 3))
    with pytest.raises(ValueError, match="expected weights >= 0, at least one of them above 0"):
        wrapped("augself", crop=0.0, color=0.0)
    b = batch("essl")
    with pytest.raises(ValueError, match="quarter turns need square views, got 8 x 4"):
        wrapped("essl")(replace(b, views=[*b.views[:2], b.views[2][:, :, :, :4]]))
    with pytest.raises(ValueError, match="the layers 1 to 4, got layer=7"):
        wrapped("augself", layer=7)
