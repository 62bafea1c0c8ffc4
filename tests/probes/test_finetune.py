from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from reglet.backbones import ConvNet, Timm, ViT, resnet8
from reglet.probes import fine_tune, layer_groups
from reglet.probes.finetune import _check


def coloured(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three classes, each with a channel of its own that is brighter."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    images = torch.randint(0, 120, (n, 3, 16, 16), generator=generator)
    images[torch.arange(n), labels] += 100
    return images.to(torch.uint8), labels


def rates(net: nn.Module, layer_decay: float = 0.5) -> dict[str, tuple[float, float]]:
    """Parameter name -> (lr, weight decay), at a peak of 1."""
    names = {id(p): name for name, p in net.named_parameters()}
    groups = layer_groups(net, lr=1.0, weight_decay=0.05, layer_decay=layer_decay)
    found = {names[id(p)]: (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert len(found) == len(names)
    return found


def test_learning_rates_fall_from_the_last_block_to_the_first() -> None:
    vit = rates(ViT(dim=8, depth=3, heads=2, size=8))
    assert vit["patch_embed.proj.weight"] == (0.5**4, 0.05)
    assert vit["pos_embed"] == vit["cls_token"] == (0.5**4, 0.0)
    assert [vit[f"blocks.{i}.mlp.fc1.weight"] for i in range(3)] == [(0.5**3, 0.05), (0.5**2, 0.05), (0.5, 0.05)]
    assert vit["blocks.1.mlp.fc1.bias"] == (0.5**2, 0.0)
    assert vit["norm.weight"] == (1.0, 0.0)
    resnet = rates(resnet8())
    assert [resnet[f"layer{i}.0.conv2.weight"][0] for i in (1, 2, 3)] == [0.5**3, 0.5**2, 0.5]
    assert resnet["conv1.weight"][0] == resnet["bn1.bias"][0] == 0.5**4
    convnet = rates(ConvNet(widths=(4, 8)))
    assert convnet["stages.1.0.weight"][0] == 2 * convnet["stages.0.0.weight"][0]
    plain = rates(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))
    assert plain["2.weight"][0] > plain["0.weight"][0]


def test_groups_are_timms_but_for_the_final_norm(timm: ModuleType) -> None:
    from timm.optim import param_groups_layer_decay

    net = Timm("vit_tiny_patch16_224", size=32)
    ours = rates(net, layer_decay=0.75)
    groups = param_groups_layer_decay(
        net.model, weight_decay=0.05, layer_decay=0.75, no_weight_decay_list=net.model.no_weight_decay()
    )
    names = {id(p): f"model.{name}" for name, p in net.model.named_parameters()}
    theirs = {names[id(p)]: (g["lr_scale"], g["weight_decay"]) for g in groups for p in g["params"]}
    assert ours.pop("model.norm.weight") == theirs.pop("model.norm.weight") == (1.0, 0.0)
    assert ours.pop("model.norm.bias") == theirs.pop("model.norm.bias") == (1.0, 0.0)
    # Theirs has the last block beside the norm, so one step less for all that stands before.
    assert ours == {name: (pytest.approx(0.75 * lr), decay) for name, (lr, decay) in theirs.items()}


def test_trains_a_copy_and_reads_the_classes() -> None:
    (x, y), (x_test, y_test) = coloured(96, 0), coloured(48, 1)
    torch.manual_seed(0)
    net = ConvNet(widths=(8, 16))
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    score = fine_tune(net, x, y, x_test, y_test, size=16, epochs=8, batch=16, lr=5e-2)
    assert score.accuracy > 0.9
    assert score.accuracy == float((score.logits.argmax(1) == y_test).double().mean())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    trained = score.model[0].state_dict()
    assert all(not torch.equal(before[k], v) for k, v in trained.items() if k.endswith("weight"))


def test_repeats_itself_and_every_option_matters() -> None:
    (x, y), (x_test, y_test) = coloured(32, 0), coloured(8, 1)
    torch.manual_seed(0)
    net = ConvNet(widths=(4,))
    common = {"size": 16, "epochs": 2, "batch": 16, "lr": 1e-2}

    def logits(**more: float | str) -> Tensor:
        return fine_tune(net, x, y, x_test, y_test, **(common | more)).logits

    first = logits()
    assert torch.equal(first, logits())
    for more in ({"seed": 1}, {"mixup": 0.0}, {"cutmix": 0.0}, {"label_smoothing": 0.0}, {"clip": 1e-3},
                 {"warmup": 0.5}, {"layer_decay": 0.5}, {"weight_decay": 10.0}, {"policy": "plain"}):  # fmt: skip
        assert not torch.equal(first, logits(**more)), more


def test_bad_input_says_so() -> None:
    x, y = coloured(12, 0)
    with pytest.raises(TypeError, match=r"expected from Conv2d features \(n, d\), got shape \(1, 4, 16, 16\)"):
        fine_tune(nn.Conv2d(3, 4, 3, padding=1), x, y, x, y, size=16)
    with pytest.raises(ValueError, match="one label for each test image, got 12 and 11"):
        _check(x, y, x, y[1:])
    with pytest.raises(ValueError, match="one class only"):
        fine_tune(ConvNet(), x, 0 * y, x, y, size=16)
    with pytest.raises(ValueError, match=r"layer_decay is a factor in \(0, 1\], got 1.5"):
        layer_groups(ConvNet(), lr=1.0, weight_decay=0.0, layer_decay=1.5)
