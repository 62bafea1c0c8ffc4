"""Does the map of a transformed image equal the transformed map?  SER's equivariance score.

    score = E cos(rho_g f(x), f(g x))          cosine per token, mean over tokens and images

The paper does not say what rho_g acts on if the output is [CLS]; here it acts on the map of a layer.  The mean token,
which all tokens share, inflates the plain cosine.  So there are two more numbers: the cosine without the mean token,
and the floor, the score of the same tokens with shuffled places.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.diagnostics.layers import Layers
from reglet.diagnostics.transforms import FLIP, ROTATIONS, ImageTransform, scale, translation
from reglet.precision import in_float64, unit_length


class Agreement(NamedTuple):
    """The mean cosine of tokens at the same place, raw and without the mean token; and their floors.

    >>> maps = torch.randn(4, 8, 3, 3)
    >>> round(agreement(maps, maps).raw, 4)
    1.0
    """

    raw: float
    centred: float
    floor: float  # of raw: expected over all shuffles of the places within an image
    centred_floor: float


def agreement(a: Float[Tensor, "n d h w"], b: Float[Tensor, "n d h w"]) -> Agreement:
    """The cosines, token by token, of two maps of the same images.

    >>> maps = torch.randn(4, 8, 3, 3)
    >>> bool(agreement(maps, maps).centred > agreement(maps, maps.flip(-1)).centred)
    True
    """
    check.tensors(["n d h w", "n d h w"], a=a, b=b)
    check.all_finite(features_of_the_first_map=a, features_of_the_second=b)
    x, y = (in_float64(m).flatten(2).transpose(1, 2) for m in (a, b))
    mean = (x.mean((0, 1)) + y.mean((0, 1))) / 2
    raw, floor = _cosine(x, y)
    centred, centred_floor = _cosine(x - mean, y - mean)
    return Agreement(raw, centred, floor, centred_floor)


def _cosine(x: Float[Tensor, "n t d"], y: Float[Tensor, "n t d"]) -> tuple[float, float]:
    """At the same place, and at two independent places: mean_pq x_p.y_q = mean_p x_p . mean_q y_q."""
    x, y = unit_length(x), unit_length(y)
    return float((x * y).sum(2).mean()), float((x.mean(1) * y.mean(1)).sum(1).mean())


def standard_transforms(*, multiple: int = 1) -> dict[str, ImageTransform]:
    """Quarter turns, a flip, scales to SER's areas of 0.7 and 1.3, and a shift by a quarter.

    multiple: sides of images are multiples of it, such as a ViT's patch.

    >>> sorted(standard_transforms())
    ['flip', 'larger', 'rot180', 'rot270', 'rot90', 'shift', 'smaller']
    """
    check.whole(1, multiple=multiple)
    return (
        ROTATIONS
        | FLIP
        | {"smaller": scale(0.7**0.5, multiple=multiple), "larger": scale(1.3**0.5, multiple=multiple)}
        | {"shift": translation(0.25)}
    )


@torch.no_grad()
def equivariance(
    layers: Layers, images: Float[Tensor, "n c h w"], *, transforms: Mapping[str, ImageTransform] | None = None
) -> dict[str, dict[str, Agreement]]:
    """layer -> transform -> agreement.  `layers` as `layer_maps` makes it; standard transforms unless given.

    >>> mean = {"pooled": lambda x: torch.nn.functional.avg_pool2d(x, 2)}
    >>> scores = equivariance(lambda x: {k: f(x) for k, f in mean.items()}, torch.rand(4, 3, 8, 8))
    >>> round(scores["pooled"]["rot90"].raw, 5)
    1.0
    """
    check.images(images)
    before = layers(images)
    scores: dict[str, dict[str, Agreement]] = {name: {} for name in before}
    for name, g in (standard_transforms() if transforms is None else transforms).items():
        after = layers(g.image(images))
        for layer, y in before.items():
            seen = after[layer]
            rows, columns = g.inside(*seen.shape[2:])
            moved = g.tokens(y, seen)
            if moved.shape != seen.shape:
                raise ValueError(f"{name} takes the map of {layer!r} to {tuple(moved.shape)}, got {tuple(seen.shape)}")
            scores[layer][name] = agreement(moved[:, :, rows, columns], seen[:, :, rows, columns])
    return scores
