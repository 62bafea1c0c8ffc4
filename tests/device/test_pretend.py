"""The pretend accelerator itself: a test that holds on it must be able to fail."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.device.pretend import traffic, without_float64
from torch import Tensor, nn

READS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x[0, 0].item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 0).all()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "nonzero": lambda x: x.nonzero(),
    "boolean indexing": lambda x: x[x > 0],
    "writing with a mask": lambda x: x.index_put((x > 0,), torch.ones(int((x > 0).sum()), device=x.device)),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "bincount": lambda x: x.long().abs().bincount() if x.ndim == 1 else x[0].long().abs().bincount(),
    "equal": lambda x: torch.equal(x, x.clone()),
    "eigh": lambda x: torch.linalg.eigh(x @ x.T),
    "synchronize": lambda x: torch.accelerator.synchronize(),
}
QUIET: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (2 * x + 1).exp().sum(0).sort(),
    "index": lambda x: x[torch.arange(2, device=x.device)],
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "a number where a mask is": lambda x: x.clone().__setitem__(x > 0, 0.0),
    "made there": lambda x: torch.zeros(3, device=x.device) + torch.arange(3, device=x.device),
    "drawn there": lambda x: torch.randn(3, device=x.device),
    "a number of the host": lambda x: x + torch.tensor(3.0),
}
MIXED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: torch.cat([x, y]),
    "stack of numbers": lambda x, y: torch.stack([x.sum(), y.sum()]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "index": lambda x, y: x[y.long().abs() % 2],
    "in place": lambda x, y: x.add_(y),
    "linear": lambda x, y: F.linear(x, y),
}


@pytest.mark.parametrize("name", READS)
def test_reads_are_counted(pretend_device: torch.device, name: str) -> None:
    x = torch.randn(3, 3).to(pretend_device)
    with traffic() as seen:
        READS[name](x)
    assert seen.read


@pytest.mark.parametrize("name", QUIET)
def test_what_stays_on_the_device_is_not(pretend_device: torch.device, name: str) -> None:
    x = torch.randn(3, 3).to(pretend_device)
    with traffic() as seen:
        QUIET[name](x)
    assert seen.read + seen.copy + seen.blocking_copy == []


@pytest.mark.parametrize("name", MIXED)
def test_devices_do_not_meet(pretend_device: torch.device, name: str) -> None:
    x, y = torch.randn(3, 3).to(pretend_device), torch.randn(3, 3)
    with pytest.raises(RuntimeError, match="same device"):
        MIXED[name](x, y)


def test_copies_are_told_apart(pretend_device: torch.device) -> None:
    pinned = torch.ones(3).pin_memory()
    with traffic() as seen:
        pinned.to(pretend_device, non_blocking=True)
    assert (len(seen.copy), len(seen.blocking_copy), len(seen.read)) == (1, 0, 0)
    with traffic() as seen:
        pinned.to(pretend_device)
        torch.ones(3).to(pretend_device, non_blocking=True)  # pageable memory is staged by the driver, which waits
        torch.tensor([1.0], device=pretend_device)
    assert (len(seen.copy), len(seen.blocking_copy), len(seen.read)) == (0, 3, 0)


def test_float64_can_be_taken_away(pretend_device: torch.device) -> None:
    x = torch.ones(3, device=pretend_device)
    assert x.double().dtype == torch.float64
    with without_float64():
        assert (x + 1).dtype == torch.float32
        for make in (x.double, lambda: torch.zeros(2, dtype=torch.float64, device=pretend_device)):
            with pytest.raises(TypeError, match="no float64"):
                make()
        with pytest.raises(TypeError, match="no float64"):
            torch.ones(2, dtype=torch.float64).to(pretend_device)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))


def test_training_is_the_cpus(device: torch.device) -> None:
    """Convolution, batch norm, autograd, AdamW, clipping, deepcopy and state_dicts, on both."""
    x, y = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
    there = net().to(device)
    nets = [net(), there, copy.deepcopy(there)]
    for model in nets:
        at = next(model.parameters()).device
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(at)), y.to(at)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    file = io.BytesIO()
    torch.save(nets[1].state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert all(value.device.type == device.type for value in saved.values())
    for key, value in nets[0].state_dict().items():
        for other in (nets[1], nets[2]):
            torch.testing.assert_close(other.state_dict()[key].cpu(), value)
        torch.testing.assert_close(saved[key].cpu(), value)


def test_generators_are_its_own(device: torch.device) -> None:
    a, b = (torch.randn(4, device=device, generator=torch.Generator(device).manual_seed(s)) for s in (1, 1))
    assert torch.equal(a, b)
    with pytest.raises(RuntimeError):
        torch.randn(4, device=device, generator=torch.Generator("meta" if device.type == "cpu" else "cpu"))
    torch.manual_seed(3)
    c = torch.randn(4, device=device)
    torch.manual_seed(3)
    assert torch.equal(c, torch.randn(4, device=device))


def test_autocast(pretend_device: torch.device) -> None:
    x = torch.randn(4, 4, device=pretend_device)
    with torch.autocast(pretend_device.type, torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).softmax(1).dtype == torch.float32
        with torch.autocast(pretend_device.type, enabled=False):
            assert (x @ x).dtype == torch.float32
