"""What is frozen stays to the bit, statistics too; heads learn first, alone."""

from pathlib import Path

import pytest
import torch
from tests.engine.toy import feed, images, toy
from torch import nn

from reglet import set_step
from reglet.backbones import resnet8, vit_mini
from reglet.engine.optim import layer_scales, parameter_groups
from reglet.engine.settings import Settings
from reglet.method import Batch
from reglet.methods import Partly, Supervised, freeze_all_but_last
from reglet.train import fit
from reglet.types import total


def states(module: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


def test_frozen_blocks_keep_weights_and_statistics() -> None:
    torch.manual_seed(0)
    net = resnet8()
    freeze_all_but_last(net, 1)
    method = Partly(Supervised(net, classes=2)).train()
    before = states(net)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        total(method(Batch([torch.randn(8, 3, 16, 16)], labels=torch.arange(8) % 2))).backward()
        optimizer.step()
    changed = {key for key, value in net.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert all(key.startswith("layer3.") for key in changed), changed
    assert any("running_mean" in key for key in changed)


def test_too_many_blocks_are_an_error() -> None:
    with pytest.raises(ValueError, match="has 6 blocks; got last_blocks=7"):
        freeze_all_but_last(vit_mini(size=16), 7)


def test_the_backbone_stands_still_while_the_heads_learn(tmp_path: Path) -> None:
    """In the loop: two steps of four are the heads' own, and the backbone's batch norm keeps its statistics."""
    found = []
    for steps in (2, 4):
        method = Partly(toy(), heads_first=2)
        before, head = states(method.backbone), method.method.head.weight.clone()
        s = Settings(out=str(tmp_path / str(steps)), steps=steps, batch=16, accelerator="cpu", lr=0.01, warmup=0.0)
        fit(method, feed(s, data=images()), s, shown=False)
        assert not torch.equal(head, method.method.head.weight)
        found.append(all(torch.equal(v, before[k]) for k, v in method.backbone.state_dict().items()))
    assert found == [True, False]


def test_a_share_of_the_steps() -> None:
    method = Partly(toy(), heads_first=0.25)
    set_step(method, 0, 8)
    assert [bool(method.held(step)) for step in range(4)] == [True, True, False, False]
    assert not method.train().backbone.training
    set_step(method, 2, 8)
    assert method.train().backbone.training
    with pytest.raises(ValueError, match="a number of steps, or a share below 1"):
        Partly(toy(), heads_first=1.5)


def test_rates_fall_from_block_to_block() -> None:
    """By hand, for six blocks: what follows them learns at the rate, the patches at rate x 0.5^7."""
    method = Supervised(vit_mini(size=16), classes=2)
    groups = parameter_groups(method, weight_decay=0.1, layer_decay=0.5)
    scale = {p: group["scale"] for group in groups for p in group["params"]}
    net = method.backbone
    assert scale[net.norm.weight] == scale[method.head.weight] == 1
    assert [scale[block.mlp.fc1.weight] for block in net.blocks] == [0.5**i for i in range(6, 0, -1)]
    assert scale[net.patch_embed.proj.weight] == scale[net.cls_token] == 0.5**7
    assert sum(len(group["params"]) for group in groups) == len(list(method.parameters()))
    assert {group["weight_decay"] for group in groups} == {0.0, 0.1}
    with pytest.raises(ValueError, match="needs a Method with a backbone"):
        layer_scales(net, 0.5)


def test_the_loop_uses_the_rates(tmp_path: Path) -> None:
    """SGD without momentum: a step is the rate times the gradient, so blocks move by their factor."""
    moved = []
    for decay in (1.0, 0.25):
        method = toy(norm=False)
        before = states(method)
        s = Settings(
            out=str(tmp_path / str(decay)),
            steps=1,
            batch=16,
            accelerator="cpu",
            optimizer="sgd",
            momentum=0.0,
            weight_decay=0.0,
            lr=0.1,
            warmup=0.0,
            layer_decay=decay,
        )
        fit(method, feed(s, data=images()), s, shown=False)
        moved.append({key: value - before[key] for key, value in method.state_dict().items()})
    top = 9  # the toy's backbone has eight children, which are its blocks
    for name, block in (("backbone.0.weight", 1), ("backbone.4.weight", 5), ("head.weight", top)):
        torch.testing.assert_close(moved[1][name], 0.25 ** (top - block) * moved[0][name], rtol=2e-2, atol=1e-8)
