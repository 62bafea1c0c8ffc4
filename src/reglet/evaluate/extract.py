"""The features of images, once."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import progress
from reglet.data import Images
from reglet.evaluate.compute import Compute
from reglet.probes import last_blocks
from reglet.types import WrongKindError

CPU = Compute()


@torch.no_grad()
def extract(
    encoder: nn.Module,
    images: Images,
    preprocess: Callable[[Tensor], Tensor],
    *,
    blocks: int = 1,
    batch: int = 256,
    compute: Compute = CPU,
    finite: bool = True,
) -> Float[Tensor, "n d"]:
    """The features of every image.  With `blocks` > 1, those of the last blocks of a ViT, side by side.

    finite: True makes features that are not finite an error; the doctor passes False, to see them.
    """
    nets = compute.copies(encoder)
    rows: list[Tensor] = []
    for i, index in enumerate(progress.track(torch.arange(len(images)).split(batch), f"features of {images.name}")):
        net = nets[i % len(nets)]
        x = compute.cast(preprocess(compute.take(images.batch(index), i % len(nets))))
        with compute.mixed():
            y = net(x) if blocks == 1 else last_blocks(net, x, blocks=blocks)
        if not rows:
            _check(encoder, x, y)
        rows.append(y.float())
    z = torch.cat([row.to(compute.place) for row in rows])
    broken = int((~z.isfinite()).any(1).sum())
    if broken and finite:
        raise ValueError(f"{type(encoder).__name__} gives features that are not finite for {broken} of {len(z)} images")
    return z


def require_fit(encoder: nn.Module, images: Images, preprocess: Callable[[Tensor], Tensor]) -> None:
    """Raise if `encoder` cannot take such images, before hours are spent on them."""
    device = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    x = preprocess(images.batch(torch.arange(min(2, len(images)))).to(device))
    try:
        with torch.no_grad():
            y = encoder.eval()(x)
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"{type(encoder).__name__} takes no images of shape {tuple(x.shape[1:])}: {first}") from error
    _check(encoder, x, y)


def _check(encoder: nn.Module, x: Tensor, y: object) -> None:
    if not isinstance(y, Tensor) or y.ndim != 2 or len(y) != len(x) or not y.is_floating_point():
        got = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise WrongKindError(
            f"expected from {type(encoder).__name__} features (n, d) with n = {len(x)}, got {got}. "
            "reglet.backbones.Adapter pools what a network puts out"
        )
