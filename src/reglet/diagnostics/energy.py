"""Where in an image the network is active: the SMI paper's activation energy maps (figure 9)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def energy_maps(maps: Float[Tensor, "n d h w"], *, size: tuple[int, int] | None = None) -> Float[Tensor, "n h2 w2"]:
    """sum_d a_d^2 at each place, from 0 at an image's least to 1 at its most; bilinear to `size` where given.

    The paper shows the maps and gives no formula; the sum of squares over channels is the usual energy.  A map that is
    the same everywhere is 0.

    >>> energy_maps(torch.tensor([[[[1.0, 2.0]], [[0.0, 1.0]]]]))
    tensor([[[0., 1.]]])
    """
    energy = unit_range(maps.float().square().sum(1, keepdim=True))
    if size is not None:
        energy = F.interpolate(energy, size=size, mode="bilinear", align_corners=False)
    return energy[:, 0]


def unit_range(maps: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h w"]:
    """Each image's channel from 0 at its least to 1 at its most; 0 throughout where it is constant."""
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    spread = high - low
    return torch.where(spread > 0, (maps - low) / spread.where(spread > 0, 1.0), torch.zeros_like(maps))
