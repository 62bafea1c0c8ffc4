"""What a translation is worth: how near its images are to domain b, and how much of their content is left.

How near is the Frechet distance between the Gaussians with the means and covariances of the features (Dowson and Landau
1982; Heusel et al. 2017 for images):

    d^2 = |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^1/2)

It is the FID only where the features are those of Heusel et al.'s Inception network.  With any other encoder its scale
is that encoder's, so a figure names it.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.backbones import ConvNet
from reglet.tasks.translation.data import TwoDomains


def frechet_distance(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> float:
    """d^2 in float64.

    tr (C_a C_b)^1/2 is the sum of the roots of the eigenvalues of C_a^1/2 C_b C_a^1/2, which is symmetric: so two
    symmetric eigendecompositions do, and nothing becomes complex.

    >>> x = torch.tensor([[0.0], [2.0]])
    >>> round(frechet_distance(x, x + 3), 9), round(frechet_distance(x, 4 * x), 9)  # C = 2
    (9.0, 27.0)
    """
    if min(len(a), len(b)) < 2:
        raise ValueError(f"a covariance needs two samples at least, got {len(a)} and {len(b)}")
    (m_a, c_a), (m_b, c_b) = (_moments(x.double()) for x in (a, b))
    root = symmetric_root(c_a)
    shared = torch.linalg.eigvalsh(root @ c_b @ root).clamp_min(0).sqrt().sum()
    return float(((m_a - m_b) ** 2).sum() + c_a.trace() + c_b.trace() - 2 * shared)


def symmetric_root(c: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Of a positive semidefinite matrix; eigenvalues below zero are rounding."""
    values, vectors = torch.linalg.eigh(c)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T


def _moments(x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    return x.mean(0), torch.atleast_2d(torch.cov(x.T))


FeaturesOf = Callable[[Tensor], Tensor]  # images in [-1, 1] -> features (n, d)


def random_conv(channels: int) -> ConvNet:
    """A conv net with random weights, the same ones always: colours, edges and textures, no meaning."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        net = ConvNet(widths=(16, 32, 64), in_channels=channels)
    return net.eval().requires_grad_(False)


@torch.no_grad()
def scores(
    translate: Callable[[Tensor], Tensor], data: TwoDomains, encoder: FeaturesOf, *, name: str
) -> dict[str, float]:
    """frechet_NAME: between translations of the test images of a, and the test images of b.  Lower is better.

    bridged: 1 - that distance over the one before translation; 1 is indistinguishable, 0 what copying gets.
    content: the share of translations whose edges are nearest to those of their own source, of all sources; a
        generator that always paints the same picture has 1/n.
    """
    made = torch.cat([translate(part) for part in data.a_test.split(100)])
    sources, fakes, targets = (see(x, encoder) for x in (data.a_test, made, data.b_test))
    before, after = frechet_distance(sources, targets), frechet_distance(fakes, targets)
    return {"bridged": 1 - after / before, f"frechet_{name}": after, "content": content(made, data.a_test)}


def see(x: Float[Tensor, "n c h w"], encoder: FeaturesOf) -> Float[Tensor, "n d"]:
    return torch.cat([encoder(part) for part in x.split(100)])


def content(made: Float[Tensor, "n c h w"], sources: Float[Tensor, "n c h w"]) -> float:
    a, b = (F.normalize(edges(x).flatten(1), dim=1) for x in (made, sources))
    nearest = (a @ b.T).argmax(1)
    return float((nearest == torch.arange(len(a))).float().mean())


def edges(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n h2 w2"]:
    """Length of the gradient of the channels' mean, averaged over 2 x 2: where lines are, whatever their colours.

    Without its mean over the image, so that two images without any line in common have a cosine of about zero.
    """
    grey = x.mean(1)
    across, down = grey[:, 1:, 1:] - grey[:, 1:, :-1], grey[:, 1:, 1:] - grey[:, :-1, 1:]
    lines = F.avg_pool2d((across**2 + down**2).sqrt()[:, None], 2)[:, 0]
    return lines - lines.mean((1, 2), keepdim=True)
