"""A rotation of the colour wheel, through HSV."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.views import check


def adjust_hue(x: Float[Tensor, "n c h w"], shift: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """Hue of each image turned by `shift` in [-1/2, 1/2] of the wheel; one channel has no hue.

    RGB -> HSV -> RGB in closed form, without a case for each sixth of the wheel.  With v = max and d = max - min, the
    hue in sixths of the wheel, from -3 to 3, is

        H = sign(g - b) (2 d - v + g + b - r) / d,

    and after the turn H' = H + 6 shift each channel is v - d clip(2 - |wrap(H' + o)|, 0, 1), o = 3, 1, -1 for r, g, b,
    wrap to [-3, 3].  The saturation d / v of the usual detour cancels.  torchvision's `adjust_hue` on floats, to within
    rounding.
    """
    check.images(x, channels=(1, 3))
    check.one_each(x, shift=shift)
    if x.shape[1] == 1:
        return x.clone()
    r, g, b = x.unbind(1)
    v = torch.maximum(torch.maximum(r, g), b)
    d = v - torch.minimum(torch.minimum(r, g), b)
    size = (g + b).sub_(r).sub_(v).add_(d, alpha=2)
    hue = torch.copysign(size, g - b).div_(d.clamp(min=torch.finfo(x.dtype).tiny))  # where d is 0, so is the size
    turned = hue.div_(6).add_(shift.to(x)[:, None, None])
    offset = torch.tensor([3 / 6, 1 / 6, -1 / 6], device=x.device, dtype=x.dtype)
    wheel = turned[:, None] + offset[:, None, None]
    share = wheel.sub_(wheel.round()).abs_().mul_(6).sub_(2).clamp_(-1, 0)  # the clip, negated
    return share.mul_(d[:, None]).add_(v[:, None])
