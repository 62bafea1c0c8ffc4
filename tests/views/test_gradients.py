"""Operations on images pass a gradient on: adversarial views and learned augmentation need it."""

import torch

from reglet.views.color import adjust_hue, color_jitter


def test_hue_is_differentiable() -> None:
    x = torch.rand(2, 3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    shift = torch.tensor([0.1, -0.2], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: adjust_hue(x, shift), (x,))


def test_jitter_is_differentiable_in_images_and_factors() -> None:
    random = torch.Generator().manual_seed(0)
    x = 0.3 + 0.4 * torch.rand(2, 3, 3, 3, generator=random, dtype=torch.float64)  # away from 0 and 1, where it clips
    factors = torch.tensor([[0.9, 1.1, 0.8, 0.1], [1.1, 0.9, 1.2, -0.1]], dtype=torch.float64)
    order = torch.tensor([[3, 0, 1, 2], [2, 1, 0, 3]])
    inputs = x.requires_grad_(), factors.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, factors: color_jitter(x, factors, order), inputs)
