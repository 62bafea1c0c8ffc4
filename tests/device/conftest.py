"""The device that the laws are held on: `make test DEVICE=cuda`, `mps`, `cpu`, or the pretend accelerator."""

import os

import pytest
import torch
from tests.device import pretend

DEVICE = os.environ.get("DEVICE") or "pretend"
_missing = ""
if DEVICE == "pretend":
    try:
        pretend.register()  # while tests are collected: the first backward pass of the process is too late
    except pretend.UnavailableError as error:
        _missing = str(error)
elif DEVICE != "cpu" and not getattr(torch, DEVICE).is_available():
    raise pytest.UsageError(f"DEVICE={DEVICE}, but there is none on this machine")


@pytest.fixture
def device() -> torch.device:
    if _missing:
        pytest.skip(_missing)
    return torch.device(DEVICE)


@pytest.fixture
def pretend_device(device: torch.device) -> torch.device:
    """For what only the pretend accelerator tells: every word between host and device."""
    if device.type != "pretend":
        pytest.skip(f"{device.type} does not count what goes between it and the host")
    return device
