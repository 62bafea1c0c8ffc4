"""The maps of a network's layers: images in, {layer: (n, d, h, w)} out."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach import Where, watch

Layers = Callable[[Tensor], Mapping[str, Tensor]]


def layer_maps(model: nn.Module, where: Where, *, patch: int | None = None, batch: int = 256) -> Layers:
    """A function from images to the outputs of the blocks `where`, in eval mode and without gradient.

    Outputs (n, d, h, w) are maps already.  Tokens (n, t, d) need the size of their `patch` in pixels; leading tokens
    that are no patches, such as [CLS], are left out.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    >>> layer_maps(net, "0")(torch.zeros(2, 3, 6, 6))["0"].shape
    torch.Size([2, 8, 6, 6])
    """

    @torch.no_grad()
    def read(images: Float[Tensor, "n c h w"]) -> dict[str, Tensor]:
        training = model.training
        eye = watch(model.eval(), where)
        kept: dict[str, list[Tensor]] = {}
        try:
            for part in images.split(batch):
                with eye.open() as taps:
                    model(part)
                for name, (y, *_) in taps.items():
                    kept.setdefault(name, []).append(_as_map(name, y, part, patch))
        finally:
            eye.remove()
            model.train(training)
        return {name: torch.cat(parts) for name, parts in kept.items()}

    return read


def _as_map(name: str, y: Tensor, images: Tensor, patch: int | None) -> Float[Tensor, "n d h w"]:
    if y.ndim == 4:
        return y
    if y.ndim != 3 or patch is None:
        raise ValueError(
            f"layer {name!r} returns {tuple(y.shape)}; expected a map (n, d, h, w), or tokens (n, t, d) and patch="
        )
    h, w = images.shape[2] // patch, images.shape[3] // patch
    if y.shape[1] < h * w:
        raise ValueError(f"layer {name!r} has {y.shape[1]} tokens, fewer than the {h} x {w} patches of {patch} px")
    return y[:, y.shape[1] - h * w :].transpose(1, 2).unflatten(2, (h, w))
