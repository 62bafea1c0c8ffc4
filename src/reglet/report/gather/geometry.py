"""How features are spread: what the geometry section draws, of a run and of whatever stands beside it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import diagnostics
from reglet.data import Images
from reglet.diagnostics.collapse import noise_rank
from reglet.report.gather.source import Source, encode

MOST = 1000  # images whose views are drawn


@dataclass(frozen=True)
class Shape:
    """Of n features of width d: the covariance's eigenvalues and the features' deviations, each over their mean.

    alignment: of two views of an image; None where training does not draw two.
    """

    n: int
    d: int
    eigenvalues: list[float]
    explained: list[float]
    std: list[float]
    rank: float
    noise_rank: float
    uniformity: float
    alignment: float | None


@dataclass(frozen=True)
class Geometry:
    trained: Shape
    untrained: Shape | None


def geometry(source: Source, x: Float[Tensor, "n d"]) -> Geometry:
    views = two_views(source, source.test)
    before = None
    if source.untrained is not None:
        pictures = source.preprocess(source.test.batch(torch.arange(min(len(x), MOST))))
        before = shape(encode(source.untrained, pictures), _embedded(source.untrained, views))
    return Geometry(shape(x, _embedded(source.encoder, views)), before)


def shape(x: Float[Tensor, "n d"], views: Float[Tensor, "2 m d"] | None = None) -> Shape:
    spectrum, std = diagnostics.eigenspectrum(x), diagnostics.feature_std(x).sort(descending=True).values
    return Shape(
        n=x.shape[0],
        d=x.shape[1],
        eigenvalues=(spectrum / spectrum.mean().clamp_min(1e-300)).tolist(),
        explained=diagnostics.explained_variance(x).tolist(),
        std=(std / std.mean().clamp_min(1e-300)).tolist(),
        rank=diagnostics.effective_rank(spectrum),
        noise_rank=noise_rank(*x.shape),
        uniformity=diagnostics.uniformity(x),
        alignment=None if views is None else diagnostics.alignment(views),
    )


def two_views(source: Source, images: Images) -> Float[Tensor, "2 n c h w"] | None:
    """The first two global views of up to MOST images, drawn as in training."""
    policy = source.policy
    if policy is None or policy.n_global < 2:
        return None
    index = torch.arange(min(len(images), MOST))
    draws = policy.draw(len(index), torch.Generator().manual_seed(0))
    rows = []
    for part in index.split(256):
        taken = [draw.take(slice(int(part[0]), int(part[-1]) + 1)) for draw in draws]
        rows.append(torch.stack(policy.apply(images.batch(part), taken)[:2]))
    return torch.cat(rows, 1)


def _embedded(encoder: nn.Module, views: Float[Tensor, "2 n c h w"] | None) -> Float[Tensor, "2 n d"] | None:
    return None if views is None else torch.stack([encode(encoder, view) for view in views])
