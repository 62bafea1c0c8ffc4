"""A rotation of the colour wheel, through HSV."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.views import check


def adjust_hue(x: Float[Tensor, "n c h w"], shift: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """Hue of each image turned by `shift` in [-1/2, 1/2] of the wheel; one channel has no hue.

    RGB -> HSV -> RGB in closed form.  With v = max, d = v - min and the hue H in sixths of the wheel,

        channel = v - d * clip(2 - |wrap(H + o)|, 0, 1),    o = 3, 1, -1 for r, g, b,

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
    # H d: (g - b) where red is largest, (b - r) + 2d where green is, (r - g) + 4d where blue is.
    turn = torch.where(v == r, g - b, torch.where(v == g, (b - r).add_(d, alpha=2), (r - g).add_(d, alpha=4)))
    hue = turn.div_(d.clamp(min=torch.finfo(x.dtype).tiny)).add_(6 * shift.to(x)[:, None, None])
    offset = torch.tensor([3.0, 1.0, -1.0], device=x.device, dtype=x.dtype)
    wheel = hue[:, None] + offset[:, None, None]
    wheel.sub_((wheel / 6).round_(), alpha=6)
    wheel.abs_().neg_().add_(2).clamp_(0, 1)
    return torch.addcmul(v[:, None], wheel, d[:, None], value=-1)
