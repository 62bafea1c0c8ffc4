"""For LatentDR: where latents are, where degradation takes them, and where restoration brings them back to."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.latent import LatentDR
from reglet.report.gather.embedding import Points, planes, some
from reglet.report.gather.source import Source

MOST = 200


@dataclass(frozen=True)
class Latents:
    """maps: name of the projection -> places of z, z_d and, where there is a restoration, z_r, in one plane.

    labels: of each, where known.
    """

    maps: dict[str, dict[str, Points]]
    labels: list[int] | None
    classes: list[str] | None


def latent_dr(source: Source) -> LatentDR | None:
    modules = source.method.modules() if source.method is not None else ()
    return next((m for m in modules if isinstance(m, LatentDR)), None)


@torch.no_grad()
def latents(source: Source, dr: LatentDR, x: Float[Tensor, "n d"]) -> Latents:
    """In evaluation mode, of up to MOST test images as one batch.  x: features of all test images."""
    index = some(source.test, MOST)
    dr.cpu().eval()
    z = x[index]
    z_d = dr.degrade(z)
    kinds: dict[str, Tensor] = {"latent": z, "degraded": z_d}
    if dr.restoration is not None:
        kinds["restored"] = dr.restore(z_d, z)
    planar, _ = planes(torch.cat(list(kinds.values())))
    maps = {name: dict(zip(kinds, places.split(len(z)), strict=True)) for name, places in planar.items()}
    known = source.test.labels
    return Latents(maps, None if known is None else known[index].tolist(), source.test.classes)
