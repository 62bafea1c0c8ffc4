"""Operations on images pass a gradient on: adversarial views and learned augmentation need it."""

import torch

from reglet.views.color import adjust_hue


def test_hue_is_differentiable() -> None:
    x = torch.rand(2, 3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    shift = torch.tensor([0.1, -0.2], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: adjust_hue(x, shift), (x,))
