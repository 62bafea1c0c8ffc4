"""Losses are computed in float32 at least, whatever autocast made of the network's outputs."""

import torch
from torch import Tensor


def full(y: Tensor) -> Tensor:
    """float16 and bfloat16 as float32, anything else as it is."""
    return y.float() if y.dtype in (torch.float16, torch.bfloat16) else y
