"""Whatever runs on the CPU runs on another device with the same values, and a training step never waits for it."""

from typing import Any

import pytest
import torch
from tests.contracts import ROWS as LOSSES
from tests.device.pretend import traffic, without_float64
from tests.device.rows import Row, oracle, rows
from torch import Tensor

ROWS = rows()


def sweep(*, trains: bool = False) -> Any:
    """One case for each row, or for each part of a training step."""
    return pytest.mark.parametrize("row", [row for row in ROWS if row.trains or not trains], ids=lambda row: row.name)


def flat(x: Any, path: str = "") -> dict[str, Tensor]:
    """Every tensor and number of a result, on the CPU."""
    if isinstance(x, Tensor):
        return {path: x.detach().cpu()}
    if isinstance(x, (bool, int, float)):
        return {path: torch.tensor(float(x))}
    parts = x.items() if isinstance(x, dict) else enumerate(x)
    return {name: value for key, part in parts for name, value in flat(part, f"{path}/{key}").items()}


@sweep()
def test_values_are_the_cpus(device: torch.device, row: Row) -> None:
    there = flat(row.build(device)())
    if row.random and device.type != "pretend":  # whose generator draws what the CPU's does
        assert all(value.isfinite().all() for value in there.values())
        return
    here = flat(row.build(torch.device("cpu"))())
    assert here.keys() == there.keys()
    for name, value in here.items():
        scale = float(value.abs().max()) if value.is_floating_point() and value.numel() else 0.0
        torch.testing.assert_close(
            there[name],
            value,
            rtol=row.tolerance,
            atol=row.tolerance * scale,
            equal_nan=True,
            check_dtype=False,  # exact probes are float64 on the CPU alone
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("row", [row for row in LOSSES if row.sliced], ids=lambda row: row.name)
def test_sliced_losses_are_their_formula(device: torch.device, row: Any) -> None:
    """At the directions that the device drew, which on a real one are not the CPU's."""
    got, want = oracle(row, device)
    for name, value in want.items():
        torch.testing.assert_close(got[name].detach().cpu().double(), value, rtol=1e-4, atol=1e-6)


@sweep(trains=True)
def test_a_step_waits_for_nothing(device: torch.device, row: Row) -> None:
    """No read, no copy that waits, and no more copies than tensors of the batch; the first step may fill caches."""
    step = row.build(device)
    step()
    if device.type == "cuda" and not row.waits:
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    elif device.type == "pretend":
        with traffic() as seen:
            step()
        assert [read for read in seen.read if not row.waits or row.waits not in read] == []
        assert seen.blocking_copy == []
        assert len(seen.copy) <= row.copies, seen.copy
    else:
        pytest.skip(f"{device.type} does not tell when the host waits for it")


@sweep()
def test_float64_is_not_needed(pretend_device: torch.device, row: Row) -> None:
    """As on MPS."""
    with without_float64():
        row.build(pretend_device)()
