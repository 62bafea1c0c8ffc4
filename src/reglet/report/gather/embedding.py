"""Features in the plane, with their images and the neighbours of each; and the latents of LatentDR in the plane."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from reglet.data import Images, Part
from reglet.diagnostics import nearest, tsne
from reglet.evaluate.features_file import FeatureRows
from reglet.latent import LatentDR
from reglet.report.gather.missing import Missing, attempt
from reglet.report.gather.source import Source

NEIGHBOURS = 8
LATENTS = 200  # test images whose latents are shown
Points = Float[Tensor, "n 2"]


@dataclass(frozen=True)
class Embedding:
    """maps: "t-SNE" and "PCA" -> places.  groups: "class" and "domain", where known -> (number of each image, names).

    index: of the images in the data set `fingerprint`, so that runs on the same images share their pictures.
    """

    maps: dict[str, Points]
    groups: dict[str, tuple[list[int], list[str]]]
    neighbours: Int64[Tensor, "n k"]
    pictures: UInt8[Tensor, "n c h w"]
    files: list[str] | None
    fingerprint: str
    of: int  # images that there were to choose from
    missing: list[Missing]


def some(images: Images, most: int) -> Int64[Tensor, " m"]:
    """Up to `most` indices, the same whenever the data are."""
    if len(images) < 4:
        raise ValueError(f"{images.name} has {len(images)} images: too few for a map")
    return torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:most].sort().values


def embedding(x: Float[Tensor, "n d"], images: Images, *, most: int) -> Embedding:
    """x: features of all `images`."""
    index = some(images, most)
    z = x[index]
    maps, missing = planes(z)
    groups: dict[str, tuple[list[int], list[str]]] = {}
    for what, known, names in (
        ("class", images.labels, images.classes),
        ("domain", images.domain, images.domains),
    ):
        if known is not None and names is not None:
            groups[what] = (known[index].tolist(), list(names))
    return Embedding(
        maps,
        groups,
        nearest(z, z, k=min(NEIGHBOURS, len(z) - 1), own=True),
        pictures(images, index, missing),
        images.names(index),
        images.fingerprint,
        len(images),
        missing,
    )


def pictures(images: Images, index: Int64[Tensor, " m"], missing: list[Missing]) -> UInt8[Tensor, "m c h w"]:
    """The images at `index`; of features alone grey squares, and a line in `missing`."""
    if isinstance(images, Part):
        return pictures(images.of, images.index[index], missing)
    if not isinstance(images, FeatureRows):
        return images.batch(index)
    if images.shown is not None:
        return images.shown.batch(index)
    missing.append(Missing("no pictures: the file has features alone. data= gives the images that they are of"))
    return torch.full((len(index), 3, 8, 8), 128, dtype=torch.uint8)


def planes(z: Float[Tensor, "n d"]) -> tuple[dict[str, Points], list[Missing]]:
    maps = {"PCA": principal(z)}
    found = attempt(lambda: tsne(z, perplexity=min(30.0, (len(z) - 1) / 3)))
    if isinstance(found, Missing):
        return maps, [Missing(f"no t-SNE: {found.why}")]
    return {"t-SNE": found, **maps}, []


def principal(z: Float[Tensor, "n d"]) -> Points:
    """The first two principal components, with the largest weight of each positive."""
    centred = (z - z.mean(0)).double()
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    axes = torch.nn.functional.pad(axes, (0, 0, 0, max(0, 2 - len(axes))))[:2]
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    return (centred @ (axes * largest.sign()).T).float()


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
    """In evaluation mode, of up to LATENTS test images as one batch.  x: features of all test images."""
    index = some(source.test, LATENTS)
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
