"""Low-rank updates: nothing changes at the start, only they learn, and merged they give the same outputs."""

from types import ModuleType

import pytest
import torch
from torch import nn

from reglet.backbones import Timm, resnet8, vit_mini
from reglet.backbones.lora import add_lora, merge_lora


def train(net: nn.Module, x: torch.Tensor) -> None:
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        net(x)[:, 0].sum().backward()
        optimizer.step()


@pytest.mark.parametrize("name", ["ours", "timm", "convolutions"])
def test_merged_is_the_same_function_and_a_plain_network(name: str, timm: ModuleType) -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    makers = {"ours": lambda: vit_mini(size=16), "timm": lambda: Timm("test_vit", size=32), "convolutions": resnet8}
    net = makers[name]().double().eval()
    x = torch.randn(4, 3, 32 if name == "timm" else 16, 32 if name == "timm" else 16, dtype=torch.float64)
    keys, before = list(net.state_dict()), {k: v.clone() for k, v in net.state_dict().items()}
    y = net(x)
    add_lora(net, 2)
    net.double()
    torch.testing.assert_close(net(x), y, rtol=0, atol=0)
    assert all("lora_" in key for key, p in net.named_parameters() if p.requires_grad)
    train(net, x)
    adapted = net(x).detach()
    assert (adapted - y).abs().max() > 1e-4
    merge_lora(net)
    assert list(net.state_dict()) == keys
    torch.testing.assert_close(net(x), adapted, rtol=1e-6, atol=1e-8)
    changed = {key for key, value in net.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert all(key.endswith(".weight") for key in changed)


def test_only_the_blocks_that_were_asked_for(timm: ModuleType) -> None:
    pytest.importorskip("peft")
    net = vit_mini(size=16)
    add_lora(net, 1, inside=["blocks.5"])
    assert {key.split(".lora_")[0].rsplit(".", 2)[0] for key, p in net.named_parameters() if p.requires_grad} == {
        "blocks.5"
    }
    assert not any("lora_" in key for key in net.state_dict() if key.startswith("blocks.4"))


def test_bad_input(timm: ModuleType) -> None:
    pytest.importorskip("peft")
    with pytest.raises(ValueError, match="rank of at least 1, got 0"):
        add_lora(vit_mini(size=16), 0)
    with pytest.raises(ValueError, match="no linear layer or plain convolution"):
        add_lora(nn.BatchNorm2d(3), 2)
