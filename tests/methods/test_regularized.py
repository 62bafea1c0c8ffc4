from copy import deepcopy

import pytest
import torch
from tests.methods.nets import NAMES, batch, method
from torch import Tensor

from reglet.blocks import SIM
from reglet.losses import VISRegLoss
from reglet.method import Method
from reglet.methods import JointEmbedding, Regularized
from reglet.types import total


def wrapped(name: str = "joint", **options) -> Regularized:
    given = {"weight": 0.5, "name": "sim", "example": batch()} | options
    return Regularized(method(name), "backbone.blocks.*", SIM(dim=3), **given).double()


def energy(x: Tensor, y: Tensor) -> Tensor:
    return y.square().mean()


@pytest.mark.parametrize("name", NAMES)
def test_terms_are_the_methods_and_one_more(name: str) -> None:
    plain, m = method(name)(batch()), wrapped(name)
    terms = m(batch())
    assert list(terms) == [*plain, "sim"]
    assert all(torch.equal(terms[key], plain[key]) for key in plain)
    twice = wrapped(name, weight=1.0)(batch())
    torch.testing.assert_close(twice["sim"], 2 * terms["sim"])
    assert terms["sim"] > 0


def test_heads_are_parameters_of_the_wrapper_and_train() -> None:
    m = wrapped()
    heads = [p for name, p in m.named_parameters() if name.startswith("attachment.heads.")]
    assert heads
    assert not any(name.startswith(("heads.", "loss.")) for name, _ in m.method.named_parameters())
    m(batch())["sim"].backward()
    assert all(p.grad is not None for p in heads)
    assert sum(bool(p.grad.any()) for p in heads) > len(heads) / 2  # of three ReLUs, all may be off
    reached = {name.split(".")[1] for name, p in m.method.named_parameters() if p.grad is not None}
    assert reached == {"patch_embed", "blocks"}


def test_images_as_example_build_heads_of_any_method() -> None:
    for name in NAMES:
        m = wrapped(name, example=batch().views[0])
        assert len(m.heads) == len(m.backbone.get_submodule("blocks"))


def test_building_leaves_no_trace() -> None:
    torch.manual_seed(0)
    m = JointEmbedding(method("joint").backbone, VISRegLoss(slices=8)).double()
    kept = deepcopy(m.state_dict())
    Regularized(m, "backbone.blocks.*", SIM(dim=3), weight=1.0, example=batch())
    assert all(torch.equal(value, kept[key]) for key, value in m.state_dict().items())
    assert m.loss.slices.step == 0


def test_without_an_example_heads_come_with_the_first_training_step() -> None:
    m = wrapped(example=None)
    assert len(m.heads) == 0
    terms = m(batch())
    assert list(m.heads) == ["backbone/blocks/0", "backbone/blocks/1"]
    torch.testing.assert_close(terms["sim"], wrapped()(batch())["sim"])


def test_in_eval_the_term_is_zero_with_heads_or_without() -> None:
    for m in (wrapped(), wrapped(example=None)):
        assert m.eval()(batch())["sim"] == 0


def test_wrappers_nest_into_one_flat_dict() -> None:
    inner = wrapped()
    m: Method = Regularized(inner, "backbone.blocks.1", energy, weight=2.0, name="energy")
    m = Regularized(m, "projector", energy, weight=1.0)
    terms = m(batch())
    assert list(terms) == [*method("joint")(batch()), "sim", "energy", "function"]
    y = inner.method.backbone.blocks(inner.method.backbone.patch_embed(torch.cat(list(batch().views))))
    torch.testing.assert_close(terms["energy"], 2 * y.square().mean())
    total(terms).backward()
    assert all(p.grad is not None for p in m.parameters())
    assert m.backbone is inner.method.backbone
    assert torch.equal(m.encode(batch().views[0]), m.backbone(batch().views[0]))


def test_a_name_twice() -> None:
    with pytest.raises(ValueError, match="already has an attachment named 'sim'"):
        Regularized(wrapped(), "backbone.blocks.*", SIM(), weight=1.0)
    m = Regularized(method("joint"), "projector", energy, weight=1.0, name="variance")
    with pytest.raises(ValueError, match="there is a term 'variance' already"):
        m(batch())


def test_copies_and_state_dicts_go_on_alike() -> None:
    def train(m: Method, steps: range) -> None:
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for step in steps:
            optimizer.zero_grad()
            total(m(batch(seed=step))).backward()
            optimizer.step()
            m.after_step(step + 1, 10)

    m, other = (Regularized(wrapped(), "projector", energy, weight=1.0) for _ in range(2))
    train(m, range(3))
    copy = deepcopy(m)
    other.load_state_dict(m.state_dict())
    for each in (m, copy, other):
        train(each, range(3, 6))
    for key, value in m.state_dict().items():
        assert torch.equal(value, copy.state_dict()[key]), key
        assert torch.equal(value, other.state_dict()[key]), key
    hooks = [len(m.method.method.backbone.blocks[0]._forward_hooks) for m in (m, copy, deepcopy(copy))]
    assert hooks == [1, 1, 1]


def test_after_step_reaches_the_method() -> None:
    m = wrapped("moco")
    with torch.no_grad():
        m.method.backbone.patch_embed.bias.add_(1.0)
    m.after_step(1, 10)
    assert (m.method.teacher.net[0].patch_embed.bias != method("moco").backbone.patch_embed.bias).all()
