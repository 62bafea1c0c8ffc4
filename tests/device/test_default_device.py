"""Everything public, with an accelerator as the default device: it gives what the CPU gives, and draws on the host."""

import warnings
from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
import torch
from tests import fuzz
from torch import Tensor


class There(fuzz.Draw):
    """Arguments without a mistake, on the device."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mistakes, self.dtype, self.scale, self.clean = 0.0, torch.float32, 1, True

    def tensor(self, axes: str, *, scale: float | None = None, grad: bool = True) -> Tensor:
        x = torch.randn(self.shape(axes), generator=self.generator, device="cpu").to(self.device)
        return x.requires_grad_() if grad else x

    def labels(self, **options: Any) -> Tensor:
        with torch.device("cpu"):
            y = super().labels(**options)
        return y.to(self.device)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the test run's checker of types, which takes no 1 for a float."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Weights are made, or noise is drawn, by the generator of the device, which another order of calls moves elsewhere.
RANDOM = {"blocks.SIM", "blocks.SIMHead", "latent.BatchFormer", "latent.NoisyLatents", "latent.LatentDR"}
RANDOM |= {"methods.domains.OnUnion"}
EXACT = {"probes.linear_probe", "probes.logistic_regression"}  # on the CPU in float64; both stop at a gradient of 1e-5


@pytest.mark.parametrize("name", fuzz.ROWS)
@pytest.mark.usefixtures("unchecked")
def test_it_gives_what_the_cpu_gives(device: torch.device, name: str) -> None:
    for seed in range(2):
        here, there = (_values(name, seed, place) for place in ("cpu", str(device)))
        assert all(value.isfinite().all() for value in there)
        if name in RANDOM or device.type != "pretend":  # whose generator draws what the CPU's does
            continue
        for a, b in zip(here, there, strict=True):
            scale = float(a.abs().max()) if a.numel() else 0.0
            torch.testing.assert_close(b, a, rtol=1e-3, atol=(1e-2 if name in EXACT else 1e-4) * scale)


def _values(name: str, seed: int, place: str) -> list[Tensor]:
    with warnings.catch_warnings(), torch.device(place):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        return [x.detach().cpu().double() for x in fuzz.floats(fuzz.ROWS[name](There(seed, device=place)))]
