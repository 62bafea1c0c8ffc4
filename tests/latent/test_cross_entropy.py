import pytest
import torch
import torch.nn.functional as F
from torch import nn

from reglet.latent import BatchFormer, CrossEntropy, GaussianNoise, LatentDR, NoisyLatents, smooth
from reglet.types import LatentLoss, Transform


def test_label_smoothing_is_torchs() -> None:
    z, y, head = torch.randn(6, 5), torch.tensor([0, 1, 2, 3, 0, 1]), nn.Linear(5, 4)
    for eps in (0.0, 0.1, 0.3):
        loss = CrossEntropy(label_smoothing=eps)
        torch.testing.assert_close(loss(z, y, head), F.cross_entropy(head(z), y, label_smoothing=eps))
    assert isinstance(loss, LatentLoss)


def test_smooth_rows() -> None:
    rows = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.5, 0.25, 0.25, 0.0]])
    want = torch.tensor([[0.05, 0.85, 0.05, 0.05], [0.45, 0.25, 0.25, 0.05]])
    torch.testing.assert_close(smooth(rows, eps=0.2), want)


def test_smoothing_bad_input() -> None:
    for eps in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"in \[0, 1\), got"):
            CrossEntropy(label_smoothing=eps)


def test_gaussian_noise() -> None:
    noise, head = NoisyLatents(5, sigma=0.3), nn.Linear(5, 4)
    z, y = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 1, 2, 3, 0, 1])
    torch.manual_seed(2)
    want = F.cross_entropy(head(z + 0.3 * torch.randn(6, 5)), y)
    torch.manual_seed(2)
    got = noise(z, y, head)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got, z), torch.autograd.grad(want, z))
    assert isinstance(noise, LatentLoss)


def test_gaussian_noise_is_a_transform() -> None:
    noise = GaussianNoise(50, 2.0)
    p, q = (noise.draw(200, torch.Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(p, q)
    moved = noise.apply(torch.zeros(200, 50), p)
    assert 1.95 < moved.std() < 2.05  # of 10,000 draws: seven standard errors, at a fixed seed
    assert isinstance(noise, Transform)


def test_gaussian_bad_input() -> None:
    with pytest.raises(ValueError, match="sigma must be a number of at least 0, got -1"):
        GaussianNoise(5, -1.0)
    with pytest.raises(ValueError, match=r"latents of NoisyLatents must be .* \(_, 5\) .* got shape \(3, 4\)"):
        NoisyLatents(5)(torch.randn(3, 4), torch.tensor([0, 1, 0]), nn.Linear(4, 2))


@pytest.mark.parametrize("latents", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32, torch.float64])
def test_a_head_of_any_precision(latents: torch.dtype, weights: torch.dtype) -> None:
    """A float32 head takes no bfloat16 latents by itself: they are brought to the precision of its weights."""
    z = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(latents).requires_grad_()
    head, y = nn.Linear(8, 3).to(weights), torch.tensor([0, 1, 2, 0])
    for loss in (CrossEntropy(), NoisyLatents(8), BatchFormer(8), LatentDR(8)):
        value = loss(z, y, head)
        assert value.dtype == (torch.float64 if weights == torch.float64 else torch.float32)
        assert torch.autograd.grad(value, z)[0].dtype == latents
    (plain,) = CrossEntropy().terms(z, y, head).values()
    torch.testing.assert_close(plain, F.cross_entropy(head(z.to(weights)).to(plain.dtype), y))
