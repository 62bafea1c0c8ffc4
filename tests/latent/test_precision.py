"""D, R and every softmax in float32 whatever autocast says; the head as the caller says."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests import ranks
from torch import Tensor, nn

from reglet.latent import BatchFormer, CrossEntropy, LatentDR

# oneDNN's fastest bfloat16 kernels are illegal instructions on machines that announce them without having them.
SAFE = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
DIM, CLASSES = 16, 3


def losses() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "attention": LatentDR(DIM, dropout=0.0),
        "pre": LatentDR(DIM, dropout=0.0, norm="pre"),
        "pool": LatentDR(DIM, dropout=0.0, degrade="pool", pool_size=8, exclude_self=True),
        "batchformer": BatchFormer(DIM, dropout=0.0),
        "plain": CrossEntropy(label_smoothing=0.1),
    }


def run(loss: Any, z: Tensor, y: Tensor, head: Any, *, autocast: bool = True) -> tuple[Tensor, Tensor]:
    leaf = z.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        value = loss(leaf, y, head)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def work(rank: int, world: int) -> dict[str, Any]:
    torch.manual_seed(1)
    z, y, head = 3 * torch.randn(9, DIM), torch.arange(9) % CLASSES, nn.Linear(DIM, CLASSES)

    def exact(rows: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return head(rows.float())

    seen: dict[str, Any] = {}
    for name, loss in losses().items():
        plain, found = (run(loss, z, y, exact, autocast=on) for on in (False, True))
        usual, half = run(loss, z, y, head)[0], run(loss, z.bfloat16(), y, head)
        seen[name] = {
            "off": max(float((a - b).norm() / b.norm()) for a, b in zip(found, plain, strict=True)),
            "dtypes": [found[0].dtype, usual.dtype, half[0].dtype, half[1].dtype],
            "rounded": float((usual - plain[0]).abs() / plain[0]),
        }
        if any(True for _ in loss.parameters()):
            whole = loss.to(torch.bfloat16)(z.bfloat16(), y, nn.Linear(DIM, CLASSES).bfloat16())
            seen[name]["whole"] = (whole.dtype, bool(torch.isfinite(whole)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(z)
    want = F.cross_entropy(logits.float(), y, label_smoothing=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen["float32 of bfloat16 logits"] = float((losses()["plain"](z, y, head) - want).abs())
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return ranks.run(
        "tests.latent.test_precision:work", world=1, folder=tmp_path_factory.mktemp("bf16"), environment=SAFE
    )[0]


@pytest.mark.parametrize("name", losses())
def test_autocast_changes_only_the_head(seen: dict[str, Any], name: str) -> None:
    found = seen[name]
    assert found["off"] <= 1e-6
    assert found["dtypes"] == [torch.float32, torch.float32, torch.float32, torch.bfloat16]
    assert 0 < found["rounded"] < 0.05, "a head under autocast rounds, so that the test above can fail"
    assert found.get("whole", (torch.float32, True)) == (torch.float32, True)


def test_the_softmax_of_rounded_logits_is_not_rounded_again(seen: dict[str, Any]) -> None:
    assert seen["float32 of bfloat16 logits"] < 1e-6
