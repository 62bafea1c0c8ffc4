"""What holds for every method."""

import os
import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from tests.methods.nets import MULTI, NAMES, batch, method
from torch import nn

from reglet.backbones import vit_mini
from reglet.method import Batch
from reglet.methods import BYOL, DINO, DINOHead, MoCoV3, SimSiam, Teacher, normed_mlp
from reglet.types import total


def train(m: nn.Module, steps: int, first: int = 0) -> None:
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2)
    for step in range(first, steps):
        optimizer.zero_grad()
        total(m(batch(sizes=MULTI, seed=step))).backward()
        optimizer.step()
        m.after_step(step + 1, 10)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_what_trains_and_nothing_else(name: str) -> None:
    m = method(name)
    total(m(batch(sizes=MULTI))).backward()
    for path, p in m.named_parameters():
        if path.startswith("teacher."):
            assert not p.requires_grad
            assert p.grad is None, path
        else:
            assert p.requires_grad
            assert p.grad is not None and p.grad.any(), path  # noqa: PT018


def test_frozen_patch_embedding() -> None:
    m = method("moco")
    frozen = MoCoV3(m.backbone, projector=m.projector, predictor=m.predictor, freeze="patch_embed")
    total(frozen(batch())).backward()
    still = [name for name, p in frozen.named_parameters() if p.grad is None and not name.startswith("teacher.")]
    assert still == ["backbone.patch_embed.weight", "backbone.patch_embed.bias"]


def test_frozen_prototypes_get_a_gradient_of_zero_and_the_same_value() -> None:
    m, b = method("dino"), batch()
    value = m(b)["distillation"]
    m.head.last.opened.fill_(0)
    frozen = m(b)["distillation"]
    assert torch.equal(value, frozen)
    frozen.backward()
    assert not m.head.last.weight.grad.any()
    assert m.head.mlp[0].weight.grad.any()


@pytest.mark.parametrize("name", NAMES)
def test_encode_is_the_backbone(name: str) -> None:
    m, x = method(name), batch().views[0]
    assert torch.equal(m.encode(x), m.backbone(x))


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_from_a_state_dict_and_in_a_copy(name: str) -> None:
    m, other = method(name), method(name)
    train(m, 3)
    other.load_state_dict(m.state_dict())
    copy = deepcopy(m)
    for each in (m, other, copy):
        train(each, 6, first=3)
    for key, value in m.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key
        assert torch.equal(value, copy.state_dict()[key]), key


def test_teacher_drops_nothing_and_normalizes_by_batch() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)))
    teacher = nn.Sequential(Teacher(net)).train()
    x = torch.randn(64, 3) + 5
    y = teacher(x)
    torch.testing.assert_close(y, nn.functional.batch_norm(x, None, None, training=True))
    teacher.eval()
    kept = deepcopy(teacher.state_dict())
    assert torch.equal(teacher(x), teacher(x))
    assert all(torch.equal(kept[k], v) for k, v in teacher.state_dict().items())
    assert [m.training for m in teacher.modules()] == [False] * 7


@pytest.mark.parametrize("kind", [MoCoV3, BYOL, SimSiam])
def test_default_heads_fit_together(kind: type) -> None:
    m = kind(vit_mini(size=16, drop_path=0.1))
    total(m(Batch(torch.randn(2, 4, 3, 16, 16).unbind(), n_global=2))).backward()
    assert all(p.grad is not None for name, p in m.named_parameters() if not name.startswith("teacher."))


def test_normed_mlp() -> None:
    names = [type(layer).__name__ for layer in normed_mlp(8, widths=(4, 4, 2))]
    assert names == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    head = normed_mlp(8, widths=(4, 2))
    assert head[-1].weight is None
    assert head[0].bias is None
    with pytest.raises(ValueError, match=r"got 8 and \(\)"):
        normed_mlp(8, widths=())


def test_dino_head_is_a_weight_normed_layer_of_unit_gain() -> None:
    head = DINOHead(6, out_dim=9, hidden=7, bottleneck=5)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(5, 9, bias=False))
    with torch.no_grad():
        layer.parametrizations.weight.original1.copy_(head.last.weight)
        layer.parametrizations.weight.original0.fill_(1)
    x = torch.randn(4, 6)
    torch.testing.assert_close(head(x), layer(nn.functional.normalize(head.mlp(x), dim=1)))


AUTOCAST = """
import torch
from tests.methods.nets import NAMES, batch, method
from reglet.method import Batch
torch.set_num_threads(1)
for name in NAMES:
    m, b = method(name).float(), batch(sizes=(16, 16, 8))
    b = Batch([v.float() for v in b.views], n_global=2, labels=b.labels, draws=b.draws)
    exact = sum(m(b).values())
    with torch.autocast("cpu", torch.bfloat16):
        value = sum(m(b).values())
    assert value.dtype == torch.float32, name
    assert abs(value - exact) < 0.05 * abs(exact) + 0.01, (name, value, exact)  # bf16 has 8 bits
    value.backward()
"""


def test_losses_are_float32_under_autocast() -> None:
    """In a process of its own: without the setting, bf16 kernels of some CPUs' oneDNN are illegal instructions."""
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", "PYTHONPATH": os.pathsep.join([".", *sys.path])}
    done = subprocess.run([sys.executable, "-c", AUTOCAST], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dino_of_a_vit_student_drops_paths_and_its_teacher_does_not() -> None:
    torch.manual_seed(0)
    m = DINO(vit_mini(size=16, drop_path=0.9), out_dim=8).train()
    x = torch.randn(8, 3, 16, 16)
    assert not torch.equal(m.backbone(x), m.backbone(x))
    assert torch.equal(m.teacher(x), m.teacher(x))
