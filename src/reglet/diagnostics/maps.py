"""Maps of a layer: where it is active, and its principal components as colours.

Energy maps are those of the SMI paper (figure 9).  PCA maps are VISReg's (appendix).  Components have an arbitrary
order and sign.  So those of two models are matched by the assignment that maximises the sum of |Pearson correlation|,
and negated if the correlation is negative.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.precision import at_least_float32, in_float64, unit_length


def energy_maps(maps: Float[Tensor, "n d h w"], *, size: tuple[int, int] | None = None) -> Float[Tensor, "n h2 w2"]:
    """sum_d a_d^2 at each place, scaled to [0, 1] in each image, and resized to `size` (bilinear) if given.

    The paper gives no formula; the sum of squares over channels is the usual energy.  A constant map becomes 0.

    >>> energy_maps(torch.tensor([[[[1.0, 2.0]], [[0.0, 1.0]]]]))
    tensor([[[0., 1.]]])
    """
    _check(maps=maps)
    largest = maps.abs().amax((1, 2, 3), keepdim=True)  # its square could overflow
    energy = unit_range((maps / largest.where(largest > 0, 1)).float().square().sum(1, keepdim=True))
    return _resized(energy, size)[:, 0]


def unit_range(maps: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h w"]:
    """Each channel of each image, scaled to [0, 1]; 0 if it is constant."""
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    spread = high - low
    return torch.where(spread > 0, (maps - low) / spread.where(spread > 0, 1.0), torch.zeros_like(maps))


def pca_maps(maps: Float[Tensor, "n d h w"], *, components: int = 3) -> Float[Tensor, "n k h w"]:
    """The first principal components of the tokens of all given images, such as one image or the frames of a video.

    The largest weight of each component is positive.

    >>> pca_maps(torch.randn(2, 16, 4, 4), components=3).shape
    torch.Size([2, 3, 4, 4])
    """
    _check(maps=maps)
    check.whole(1, components=components)
    n, d, h, w = maps.shape
    tokens = in_float64(maps).permute(0, 2, 3, 1).reshape(-1, d)
    if not components <= min(d, len(tokens) - 1):
        raise ValueError(f"{len(tokens)} tokens of {d} features have no {components} components")
    tokens = tokens - tokens.mean(0)
    _, vectors = torch.linalg.eigh(tokens.T @ tokens)
    axes = vectors.flip(1)[:, :components]
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    scores = tokens @ (axes * largest.sign())
    return scores.view(n, h, w, components).permute(0, 3, 1, 2).to(at_least_float32(maps).dtype)


def match_components(maps: Float[Tensor, "n k h w"], reference: Float[Tensor, "n k h2 w2"]) -> Float[Tensor, "n k h w"]:
    """The components of `maps`, in the order and with the signs that fit `reference` best.

    The reference is resized to the grid of `maps`.  A constant component has no correlation.

    >>> reference = torch.randn(1, 3, 4, 4)
    >>> torch.allclose(match_components(-reference.flip(1), reference), reference)
    True
    """
    _check(maps=maps, reference=reference)
    check.tensor("reference", reference, *maps.shape[:2], None, None)
    other = _resized(in_float64(reference), (maps.shape[2], maps.shape[3]))
    a, b = (in_float64(x).transpose(0, 1).flatten(1) for x in (maps, other))
    correlation = _unit_rows(b) @ _unit_rows(a).T  # (reference's, ours)
    order = torch.tensor(_assignment(-correlation.abs()), device=correlation.device)
    sign = correlation[torch.arange(len(order), device=order.device), order].sign()
    sign = torch.where(sign == 0, torch.ones_like(sign), sign)
    return maps[:, order.to(maps.device)] * sign.to(maps).view(1, -1, 1, 1)


def as_colours(maps: Float[Tensor, "n k h w"], *, size: tuple[int, int] | None = None) -> Float[Tensor, "n k h2 w2"]:
    """Each component of each image, scaled to [0, 1], and resized to `size` (bilinear) if given.

    >>> colours = as_colours(torch.randn(2, 3, 4, 4), size=(16, 16))
    >>> colours.shape, bool(colours.min() >= 0)
    (torch.Size([2, 3, 16, 16]), True)
    """
    _check(maps=maps)
    return _resized(unit_range(maps.float()), size)


def _check(**maps: Tensor) -> None:
    for name, each in maps.items():
        check.tensor(name, each, None, None, None, None)
        check.all_finite(**{f"features_of_{name}": each})


def _resized(maps: Float[Tensor, "n k h w"], size: tuple[int, int] | None) -> Float[Tensor, "n k h2 w2"]:
    if size is None:
        return maps
    check.grid(size=size)
    return F.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=False)


def _unit_rows(x: Float[Tensor, "k m"]) -> Float[Tensor, "k m"]:
    return unit_length(x - x.mean(1, keepdim=True))


def _assignment(cost: Float[Tensor, "k k"]) -> list[int]:
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError("matching components needs scipy: pip install reglet[data]") from error
    _, columns = linear_sum_assignment(cost.cpu().numpy())
    return [int(c) for c in columns]
