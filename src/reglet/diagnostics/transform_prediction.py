"""SER's rotation and flip probes: can a probe read from a layer how the image was turned?

The paper does not say which features its probe sees.  Here it sees the mean over a layer's places; with `pair` also
that of the original image.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.diagnostics.layers import Layers
from reglet.diagnostics.transforms import ImageTransform, flip, rotation

Score = Callable[[Tensor, Tensor, Tensor, Tensor], float]


def predict_rotation(
    layers: Layers, images: Float[Tensor, "n c h w"], *, score: Score, pair: bool = False, seed: int = 0
) -> dict[str, float]:
    """layer -> accuracy in telling quarter turns apart; chance is 1/4.

    score: any probe, as (training features, labels, test features, labels) -> accuracy, for instance
        `lambda *parts: reglet.probes.linear_probe(*parts).accuracy`.

    >>> from reglet.probes import ridge_probe
    >>> images = torch.linspace(0, 1, 8).expand(40, 1, 8, 8) + 0.1 * torch.rand(40, 1, 8, 8)  # brighter to the right
    >>> predict_rotation(lambda x: {"pixels": x.flatten(1)}, images, score=lambda *parts: ridge_probe(*parts).accuracy)
    {'pixels': 1.0}
    """
    check.images(images)
    if images.shape[2] != images.shape[3]:
        raise ValueError(f"quarter turns need square images, got {images.shape[2]} x {images.shape[3]}")
    return predict_transform(layers, images, [rotation(k) for k in range(4)], score=score, pair=pair, seed=seed)


def predict_flip(
    layers: Layers, images: Float[Tensor, "n c h w"], *, score: Score, pair: bool = False, seed: int = 0
) -> dict[str, float]:
    """layer -> accuracy in telling images from their mirror images; chance is 1/2.

    >>> from reglet.probes import ridge_probe
    >>> images = torch.linspace(0, 1, 8).expand(40, 1, 8, 8) + 0.1 * torch.rand(40, 1, 8, 8)  # brighter to the right
    >>> predict_flip(lambda x: {"pixels": x.flatten(1)}, images, score=lambda *parts: ridge_probe(*parts).accuracy)
    {'pixels': 1.0}
    """
    return predict_transform(layers, images, [rotation(0), flip()], score=score, pair=pair, seed=seed)


@torch.no_grad()
def predict_transform(
    layers: Layers,
    images: Float[Tensor, "n c h w"],
    transforms: Sequence[ImageTransform],
    *,
    score: Score,
    pair: bool = False,
    seed: int = 0,
) -> dict[str, float]:
    """The accuracy of a probe that tells the transforms apart.  Half of the images train it, the other half test it.

    An image and its transforms are in the same half, so that no image can be recognised.
    """
    check.images(images)
    check.whole(0, seed=seed)
    check.flag(pair=pair)
    n = len(images)
    if n < 4:
        raise ValueError(f"predicting a transform needs at least 4 images, got {n}")
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(seed), device="cpu").to(images.device)
    train, test = shuffled[: n // 2], shuffled[n // 2 :]
    plain = _pooled(layers(images)) if pair else {}
    seen = [_pooled(layers(g.image(images))) for g in transforms]

    def part(layer: str, index: Tensor) -> tuple[Tensor, Tensor]:
        rows = [torch.cat([plain[layer][index], y[layer][index]], 1) if pair else y[layer][index] for y in seen]
        labels = torch.arange(len(seen), device=images.device).repeat_interleave(len(index))
        return torch.cat(rows), labels

    return {layer: score(*part(layer, train), *part(layer, test)) for layer in seen[0]}


def _pooled(maps: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: y.flatten(2).mean(2) if y.ndim > 2 else y for name, y in maps.items()}
