"""One helper for what is computed in float32 whatever the network was run in."""

import torch

from reglet.precision import at_least_float32, no_autocast


def test_narrow_floats_are_widened_and_nothing_else() -> None:
    x = torch.ones(2)
    for narrow in (torch.float16, torch.bfloat16, torch.float8_e5m2):
        assert at_least_float32(x.to(narrow)).dtype == torch.float32
    for same in (x, x.double(), x.long(), x.bool()):
        assert at_least_float32(same) is same


def test_autocast_is_off() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with no_autocast(torch.ones(1)):
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
    with no_autocast(torch.ones(1, device="meta")):  # a device without autocast
        pass
