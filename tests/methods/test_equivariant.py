"""SER around every method: what it computes, where its gradient goes, what it leaves as it was."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.methods.equivariant_nets import BASES, DEPTH, PATCH, SHARE, base, batch, mlp, vit
from torch import Tensor, nn

from reglet.backbones import ConvNet, ViT
from reglet.blocks import SIM
from reglet.blocks.patch_ntxent import patch_ntxent
from reglet.diagnostics import equivariance, layer_maps
from reglet.diagnostics.transforms import FLIP, ROTATIONS
from reglet.groups import D4, Element, Symmetry, act, align, relative, transform
from reglet.method import Method
from reglet.methods import JointEmbedding, Regularized
from reglet.methods.equivariant import Equivariant
from reglet.methods.moco import contrast
from reglet.types import total


def wrapped(name: str = "moco", net: nn.Module | None = None, **options) -> Equivariant:
    torch.manual_seed(5)
    return Equivariant(base(name, net), **({"fraction": SHARE, "layer": 2, "width": 6} | options)).double()


def step(m: Method, *, seed: int = 0, **options) -> Method:
    optimizer = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.5)
    optimizer.zero_grad()
    torch.manual_seed(7)
    total(m(batch(seed=seed, **options))).backward()
    optimizer.step()
    m.after_step(1, 10)
    return m


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, b[key]) for key, value in a.items())


def drawn(m: Equivariant, views: list[Tensor]) -> list[Element]:
    torch.manual_seed(7)
    groups = [m.group.fitted(tuple(x.shape[2:]), patch=m.patch) for x in views[::2]]
    return [e for group in groups for e in group.draw_pair(3)]


def tokens_at(net: ViT, x: Tensor, layer: int) -> Tensor:
    """Tokens after `layer` blocks, without hooks."""
    kept = []
    handle = net.blocks[layer - 1].register_forward_hook(lambda _, __, y: kept.append(y))
    net(x)
    handle.remove()
    grid = x.shape[2] // PATCH * (x.shape[3] // PATCH)
    return kept[0][:, -grid:]


@pytest.mark.parametrize("name", BASES)
def test_around_every_method_there_is_one_more_term(name: str) -> None:
    m = wrapped(name)
    terms = m(batch())
    assert list(terms) == [*base(name)(batch()), "equivariance"]
    assert terms["equivariance"] > 0
    total(terms).backward()
    for path, p in m.named_parameters():
        if "teacher" not in path:
            assert p.grad is not None and p.grad.any(), path  # noqa: PT018


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("name", ["vicreg", "moco"])
def test_gradient_reaches_the_head_and_the_blocks_up_to_the_layer_and_nothing_after(name: str, layer: int) -> None:
    """What the released code fails: there nothing has a gradient."""
    m = wrapped(name, layer=layer)
    m(batch())["equivariance"].backward()
    for path, p in m.named_parameters():
        inside = ["heads.", "method.backbone.patch_embed", "method.backbone.pos_embed"]
        inside += [f"method.backbone.blocks.{i}." for i in range(layer)]
        if layer == 3:
            inside.append("method.backbone.cls_token")  # it joins before the third block, and is attended there
        if path.startswith(tuple(inside)):
            assert p.grad is not None and p.grad.any(), path  # noqa: PT018
        else:
            assert p.grad is None, path


@pytest.mark.parametrize("name", ["vicreg", "moco", "dino"])
def test_the_base_loss_is_that_of_b1_and_b2_in_one_batch(name: str) -> None:
    """By hand: encode the parts apart, and let the method's own heads and loss see them together."""
    m, b = wrapped(name), batch()
    torch.manual_seed(7)
    terms = m(b)
    plain = base(name)
    elements = drawn(m, list(b.views))

    def features(net: nn.Module, v: int) -> Tensor:
        x = b.views[v]
        return torch.cat([net(x[:5]), net(transform(x[5:], elements[v], patch=PATCH))])

    if name == "vicreg":
        expected = plain.objective([plain.projector(features(plain.backbone, v)) for v in (0, 1)], n_global=2)
    elif name == "moco":
        q = [plain.predictor(plain.projector(features(plain.backbone, v))) for v in (0, 1)]
        k = [plain.projector(features(plain.backbone, v)) for v in (0, 1)]  # the teacher starts as the student
        expected = {"contrast": contrast(q[0], k[1]) + contrast(q[1], k[0])}
    else:
        y = [plain.head(features(plain.backbone, v)) for v in (0, 1)]
        ce = [-(F.softmax(y[g] / 0.04, 1) * F.log_softmax(y[1 - g] / 0.1, 1)).sum(1).mean() for g in (0, 1)]
        expected = {"distillation": sum(ce) / 2}
    for key, value in expected.items():
        torch.testing.assert_close(terms[key], value, rtol=1e-6, atol=0)  # tau_t of DINO is a float32 buffer


def by_hand(m: Equivariant, views: list[Tensor], elements: list[Element], layer: int, *, intra: bool = True) -> Tensor:
    head, net = m.heads[f"blocks/{layer - 1}"], m.backbone
    z = [head(tokens_at(net, transform(x[5:], e, patch=PATCH), layer)) for x, e in zip(views, elements, strict=True)]
    sides = []
    for a, b in ((0, 1), (1, 0)):
        ea, eb = elements[a], elements[b]
        moved = align(z[a], relative(ea, eb), grid=ea.shape, to=eb.shape)
        sides.append(patch_ntxent(z[b], moved, temperature=0.3, symmetric=False, intra=intra))
    return sum(sides) / 2


@pytest.mark.parametrize("layer", [1, 2, 3, 4])
def test_the_equivariance_loss_of_a_layer(layer: int) -> None:
    m, b = wrapped(layer=layer, weight=2.0), batch()
    torch.manual_seed(7)
    value = m(b)["equivariance"]
    torch.testing.assert_close(value, 2 * by_hand(m, list(b.views), drawn(m, list(b.views)), layer))


def test_all_layers_have_a_head_each_and_are_averaged() -> None:
    m, b = wrapped(layer="blocks.*", weight=1.0), batch()
    assert list(m.heads) == [f"blocks/{i}" for i in range(DEPTH)]
    torch.manual_seed(7)
    value = m(b)["equivariance"]
    elements = drawn(m, list(b.views))
    expected = [by_hand(m, list(b.views), elements, layer) for layer in range(1, DEPTH + 1)]
    torch.testing.assert_close(value, sum(expected) / DEPTH)
    assert list(wrapped(layer=[1, 3]).heads) == ["blocks/0", "blocks/2"]


@pytest.mark.parametrize("pairs", ["sum", "mean"])
def test_multi_crop_pairs(pairs: str) -> None:
    m, b = wrapped(pairs=pairs, weight=1.0), batch(local=4)
    torch.manual_seed(7)
    value = m(b)["equivariance"]
    views, elements = list(b.views), drawn(m, list(b.views))
    expected = sum(by_hand(m, views[i : i + 2], elements[i : i + 2], 2) for i in (0, 2, 4))
    torch.testing.assert_close(value, expected / (3 if pairs == "mean" else 1))


def test_momentum_target_is_the_teachers_and_gets_no_gradient() -> None:
    m, b = wrapped(target="momentum", intra=False, weight=1.0), batch()
    torch.manual_seed(7)
    value = m(b)["equivariance"]
    torch.testing.assert_close(value, by_hand(m, list(b.views), drawn(m, list(b.views)), 2, intra=False))
    step(m)
    assert not torch.equal(m.heads["blocks/1"].norm.weight, m.teacher_norms["blocks/1"].net.weight)
    before = deepcopy(m.teacher_norms.state_dict())
    m.after_step(2, 10)
    assert not same(before, m.teacher_norms.state_dict())
    assert all(p.grad is None for path, p in m.named_parameters() if "teacher" in path)
    m.zero_grad()
    m(b)["equivariance"].backward()
    head = m.heads["blocks/1"].projector[0].weight.grad
    assert head.any()
    torch.manual_seed(7)
    before_it = m(b)["equivariance"]
    with torch.no_grad():  # another teacher, another loss
        m.method.teacher.net[0].pos_embed.normal_()
    torch.manual_seed(7)
    assert m(b)["equivariance"] != before_it


def test_two_base_losses_instead_of_one() -> None:
    m, b = wrapped(base="two"), batch()
    torch.manual_seed(7)
    terms = m(b)
    elements = drawn(m, list(b.views))
    assert list(terms) == ["contrast", "contrast_b2", "equivariance"]
    plain = base("moco")
    b = replace(b, labels=None, draws=None)
    first = replace(b, views=[x[:5] for x in b.views])
    second = replace(b, views=[transform(x[5:], e, patch=PATCH) for x, e in zip(b.views, elements, strict=True)])
    torch.testing.assert_close(terms["contrast"], plain(first)["contrast"])
    torch.testing.assert_close(terms["contrast_b2"], plain(second)["contrast"])
    together = wrapped()
    torch.manual_seed(7)
    assert torch.equal(terms["equivariance"], together(batch())["equivariance"])


@pytest.mark.parametrize("name", ["vicreg", "dino"])
def test_two_base_losses_of_methods_that_concatenate_views(name: str) -> None:
    square = Symmetry(area=None)
    terms = []
    for kind in ("one", "two"):
        torch.manual_seed(7)
        terms.append(wrapped(name, base=kind, group=square)(batch()))
    torch.testing.assert_close(terms[0]["equivariance"], terms[1]["equivariance"])


@pytest.mark.parametrize("name", ["vicreg", "moco", "dino"])
def test_weight_zero_and_the_released_code_train_the_base_alone(name: str) -> None:
    zero, released = step(wrapped(name, weight=0.0)), step(wrapped(name, grad_mode="released"))
    full = step(wrapped(name))
    kept = {key: v for key, v in zero.state_dict().items() if key.startswith("method.")}
    assert same(kept, released.state_dict())
    assert not same(kept, full.state_dict())
    plain = wrapped(name)  # the concatenated base loss by itself
    optimizer = torch.optim.SGD([p for p in plain.method.parameters() if p.requires_grad], lr=0.5)
    torch.manual_seed(7)
    terms = plain(batch())
    total({key: v for key, v in terms.items() if key != "equivariance"}).backward()
    optimizer.step()
    plain.after_step(1, 10)
    assert same(kept, plain.state_dict())


def test_the_released_code_has_the_value_and_no_gradient() -> None:
    values = []
    for m in (wrapped(), wrapped(grad_mode="released")):
        torch.manual_seed(7)
        values.append(m(batch())["equivariance"])
    assert torch.equal(*values)
    assert not values[1].requires_grad
    assert not any(p.requires_grad for p in m.heads.parameters())


@pytest.mark.parametrize("name", BASES)
def test_share_zero_is_the_base(name: str) -> None:
    m, plain, b = wrapped(name, fraction=0.0), base(name), replace(batch(share=0.0), draws=None)
    state = torch.get_rng_state()
    assert same(m(b), plain(b))
    assert torch.equal(state, torch.get_rng_state())


def test_early_tokens_do_not_depend_on_a_late_cls() -> None:
    x = batch().views[0]
    for layer in (1, 2):
        net = vit(cls_layer=2).double()
        before = tokens_at(net, x, layer)
        with torch.no_grad():
            net.cls_token.normal_()
        assert torch.equal(tokens_at(net, x, layer), before)
    net = vit(cls_layer=2).double()
    later = tokens_at(net, x, 3)
    with torch.no_grad():
        net.cls_token.normal_()
    assert not torch.equal(tokens_at(net, x, 3), later)


def symmetrical() -> ViT:
    """Patches are averaged and places are not told apart: exactly equivariant to D4."""
    net = vit().double()
    with torch.no_grad():
        net.patch_embed.proj.weight.copy_(net.patch_embed.proj.weight.mean((2, 3), keepdim=True).expand(-1, -1, 4, 4))
        net.pos_embed.zero_()
    return net


@pytest.mark.parametrize("layer", [1, 4])
def test_an_exactly_equivariant_encoder(layer: int) -> None:
    net, x = symmetrical(), torch.randn(8, 3, 16, 24, dtype=torch.float64)
    for odd in (0, 1):
        g = D4(torch.tensor([odd, odd + 2] * 4), torch.tensor([False, False, True, True] * 2))
        to = (6, 4) if odd else (4, 6)
        moved = align(tokens_at(net, x, layer), g, grid=(4, 6), to=to)
        seen = tokens_at(net, act(x, g), layer)
        assert (moved - seen).norm() < 1e-5 * seen.norm()
        assert F.cosine_similarity(moved, seen, dim=2).min() > 1 - 1e-10
        other = vit().double()
        moved, seen = align(tokens_at(other, x, layer), g, grid=(4, 6), to=to), tokens_at(other, act(x, g), layer)
        assert F.cosine_similarity(moved, seen, dim=2).mean() < 0.99


def test_equivariance_score_of_the_exact_encoder_is_one() -> None:
    images = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    for net, exact in ((symmetrical(), True), (vit().double(), False)):
        scores = equivariance(layer_maps(net, "blocks.*", patch=PATCH), images, transforms=ROTATIONS | FLIP)
        for layer in ("blocks.0", "blocks.3"):
            for score in scores[layer].values():
                assert (score.raw > 1 - 1e-9) == exact


def test_positives_of_the_exact_encoder_are_equal_and_with_a_wrong_element_they_are_not() -> None:
    m = wrapped("vicreg", symmetrical(), group=Symmetry(area=None))
    x = batch().views[0]
    first, second = drawn(m, [x, x])
    z1, z2 = (m.heads["blocks/1"](tokens_at(m.backbone, transform(x[5:], e, patch=PATCH), 2)) for e in (first, second))
    grid = {"grid": (4, 4), "to": (4, 4)}
    torch.testing.assert_close(align(z1, relative(first, second), **grid), z2, rtol=1e-9, atol=1e-11)
    wrong = align(z1, relative(first, second) @ D4(torch.tensor([0, 1, 2]), torch.tensor([True, False, True])), **grid)
    assert ((wrong - z2).norm(dim=(1, 2)) > 0.01 * z2.norm(dim=(1, 2))).all()


def conv() -> ConvNet:
    torch.manual_seed(2)
    return ConvNet(widths=(4, 6), depth=1, stride=2).double()


def test_on_the_map_of_a_convolutional_network() -> None:
    images = batch().views[0]
    m = wrapped("vicreg", conv(), layer="stages.0", patch=4, example=images)
    assert m.heads["stages/0"].norm.normalized_shape == (4,)
    terms = m(batch())
    terms["equivariance"].backward()
    grads = {path: p.grad is not None for path, p in m.method.backbone.named_parameters()}
    assert grads == {path: path.startswith("stages.0.") for path in grads}
    with pytest.raises(ValueError, match="give some images as example="):
        wrapped("vicreg", conv(), layer="stages.0", patch=4)
    with pytest.raises(ValueError, match="ConvNet has no patch: give its stride as patch="):
        wrapped("vicreg", conv(), layer="stages.0", example=images)


@pytest.mark.parametrize("outside", [False, True])
def test_wrappers_nest_into_one_flat_dict(outside: bool) -> None:
    torch.manual_seed(5)
    inner: Method = base("vicreg")
    options = {"weight": 0.1, "name": "sim", "example": batch().views[0]}
    if not outside:
        inner = Regularized(inner, "backbone.blocks.*", SIM(dim=3), **options)
    m: Method = Equivariant(inner, fraction=SHARE, layer=2, width=6)
    if outside:
        m = Regularized(m, "backbone.blocks.*", SIM(dim=3), **options)
    m = m.double()
    terms = m(batch())
    own = ["equivariance", "sim"] if outside else ["sim", "equivariance"]
    assert list(terms) == [*base("vicreg")(batch()), *own]
    total(terms).backward()
    assert all(p.grad is not None for p in m.parameters())
    assert torch.equal(m.encode(batch().views[0]), m.backbone(batch().views[0]))


@pytest.mark.parametrize("options", [{}, {"target": "momentum"}, {"base": "two"}])
def test_copies_and_state_dicts_go_on_alike_and_nothing_is_left_on_the_backbone(options: dict) -> None:
    m, other = step(wrapped(**options)), wrapped(**options)
    copy = deepcopy(m)
    other.load_state_dict(m.state_dict())
    for each in (m, other, copy):
        step(each, seed=1)
    assert same(m.state_dict(), other.state_dict())
    assert same(m.state_dict(), copy.state_dict())
    nets = [m.backbone, m.method.teacher.net[0]]
    assert not any(len(p._forward_hooks) + len(p._forward_pre_hooks) for net in nets for p in net.modules())


def test_a_method_that_calls_its_backbone_otherwise_is_found_out() -> None:
    class Twice(JointEmbedding):
        def forward(self, batch):
            self.backbone(batch.views[0])
            return super().forward(batch)

    class Never(JointEmbedding):
        def forward(self, batch):
            return self.objective([self.projector(self.backbone(batch.views[0]))] * 2, n_global=2)

    loss = base("vicreg").loss
    for kind, message in ((Twice, "1 of which are left at this size"), (Never, r"on the views \[1\]")):
        m = Equivariant(kind(vit(), loss, projector=mlp(8, 7, 5)), fraction=SHARE, layer=2).double()
        with pytest.raises(RuntimeError, match=message):
            m(batch())


def test_bad_input() -> None:
    b = batch()
    with pytest.raises(ValueError, match="this batch has no draws"):
        wrapped()(replace(b, draws=None))
    with pytest.raises(ValueError, match=r"fraction=0.125 of 8 images is 1 on each of 1 ranks"):
        wrapped(fraction=0.125)(batch(share=0.125))
    with pytest.raises(ValueError, match="should differ in colours only, but their crop differs"):
        wrapped()(batch(share=0.25))
    with pytest.raises(ValueError, match=r"the layers 1 to 4, got layer=5"):
        wrapped(layer=5)
    with pytest.raises(ValueError, match=r"the layers 1 to 4, got layer=0"):
        wrapped(layer=0)
    with pytest.raises(LookupError, match=r"no module matches 'block.1'. Did you mean 'blocks.1'"):
        wrapped(layer="block.1")
    with pytest.raises(ValueError, match="give the layer by its name"):
        wrapped("vicreg", conv(), layer=2, patch=4)
    with pytest.raises(ValueError, match="target='momentum' needs a method with a teacher, got JointEmbedding"):
        wrapped("vicreg", target="momentum")
    with pytest.raises(ValueError, match="a momentum teacher sees global views only, 2 of these 6"):
        wrapped(target="momentum")(batch(local=4))
    odd = [F.pad(x, (0, 1)) for x in b.views]
    with pytest.raises(ValueError, match="16 x 17 are not made of patches of 4 x 4"):
        wrapped()(replace(b, views=odd))
    with pytest.raises(ValueError, match=r"expected fraction in \[0, 1\) and temperature > 0, got 1.0 and 0.3"):
        wrapped(fraction=1.0)
    m = wrapped("moco")
    m.name = "contrast"
    with pytest.raises(ValueError, match="there is a term 'contrast' already"):
        m(b)
