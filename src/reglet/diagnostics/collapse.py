"""Numbers that show whether a representation has collapsed, whatever its scale, n and d."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.diagnostics.spectrum import check_features, effective_rank, eigenspectrum
from reglet.precision import in_float64


def relative_spread(z: Float[Tensor, "n d"]) -> float:
    """sqrt(E |z - E z|^2 / E |z|^2): 0 if all samples are one point, 1 if their mean is the origin.

    >>> relative_spread(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), relative_spread(torch.ones(3, 2))
    (1.0, 0.0)
    """
    check_features(z, least=2)
    z = in_float64(z)
    size = z.square().sum(1).mean()
    return float(((z - z.mean(0)).square().sum(1).mean() / size).sqrt()) if size > 0 else 0.0


def covariance_rank(z: Float[Tensor, "n d"]) -> float:
    """The effective rank of the covariance: the number of directions that share the variance.

    >>> z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(covariance_rank(z), 4)
    2.0
    """
    return effective_rank(eigenspectrum(z))


def noise_rank(n: int, d: int) -> float:
    """The mean `covariance_rank` of n samples of d independent Gaussians.

        m exp(-m / 2M),       m and M the smaller and the larger of n - 1 and d

    The mean entropy of a random spectrum (Marchenko-Pastur) is log m - m / 2M (Page, PRL 71, 1993).  So even good
    features do not reach a rank of d or n.

    >>> round(noise_rank(1001, 100), 1), round(noise_rank(101, 1000), 1)
    (95.1, 95.1)
    """
    check.whole(2, n=n)
    check.whole(1, d=d)
    m, most = min(n - 1, d), max(n - 1, d)
    return m * math.exp(-m / (2 * most))


def directions(z: Float[Tensor, "n d"], *, fraction: float = 0.999) -> int:
    """The number of principal directions that hold `fraction` of the variance; 0 if there is no variance."""
    return leading(eigenspectrum(z), fraction=fraction)


def leading(spectrum: Float[Tensor, " r"], *, fraction: float = 0.999) -> int:
    """The number of largest values that hold `fraction` of the sum.

    >>> leading(torch.tensor([8.0, 1.0, 1.0]), fraction=0.85)
    2
    """
    total = spectrum.sum()
    return int((spectrum.cumsum(0) < fraction * total).sum()) + 1 if total > 0 else 0


def same_image_auc(z: Float[Tensor, "2 n d"]) -> float:
    """How often two views of one image are closer than views of two images: 1 always, 1/2 by chance.

    Equal distances count half, so a constant representation has 1/2.

    >>> z = torch.randn(64, 8)
    >>> same_image_auc(torch.stack([z, z])), same_image_auc(torch.zeros(2, 64, 8))
    (1.0, 0.5)
    """
    check.tensor("z", z, 2, None, None)
    check.all_finite(embeddings=z)
    if z.shape[1] < 2:
        raise ValueError(f"expected views of two images or more, got {z.shape[1]}")
    a, b = in_float64(z)
    a, b = a - b.mean(0), b - b.mean(0)
    # |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>, and |a|^2 is the same on both sides of a comparison
    distance = torch.addmm(b.square().sum(1), a, b.T, alpha=-2)
    own = distance.diagonal()[:, None]
    n = len(a)
    closer = int((own < distance).sum()) + 0.5 * int((own == distance).sum())
    return (closer - 0.5 * n) / (n * (n - 1))  # own against own is a tie
