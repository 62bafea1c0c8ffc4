"""Does the map of a transformed image equal the transformed map?  SER's equivariance score.

    score = E cos(rho_g f(x), f(g x))          cosine per token, mean over tokens and images

The paper leaves open what rho_g acts on where the output is [CLS]; here it is the map of a layer.  The plain cosine is
inflated by the mean token, which all tokens share, so two more numbers stand beside it: the cosine after the mean token
is taken away, and the floor, which is what the same tokens score when their places are shuffled.
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
    """Mean cosine of tokens at one place, raw and less the mean token; floors: of tokens of other images.

    >>> maps = torch.randn(4, 8, 3, 3)
    >>> round(agreement(maps, maps).raw, 4)
    1.0
    """

    raw: float
    centred: float
    floor: float  # of raw: expected over all shuffles of the places within an image
    centred_floor: float


def agreement(a: Float[Tensor, "n d h w"], b: Float[Tensor, "n d h w"]) -> Agreement:
    """Token by token cosines of two maps of the same images.

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
    """At the same place, and at two places drawn independently: mean_pq x_p.y_q = mean_p x_p . mean_q y_q."""
    x, y = unit_length(x), unit_length(y)
    return float((x * y).sum(2).mean()), float((x.mean(1) * y.mean(1)).sum(1).mean())


def standard_transforms(*, multiple: int = 1) -> dict[str, ImageTransform]:
    """Quarter turns, flip, a scale down and up as far as SER's areas of 0.7 and 1.3 go, a shift by a quarter.

    multiple: of which the sides of images must be, such as a ViT's patch.

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
