"""PCA and energy maps of a few images."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from reglet.data import Images
from reglet.diagnostics import energy_maps, pca_maps
from reglet.report.gather.embedding import some
from reglet.report.gather.layers import finest, layers_of
from reglet.report.gather.source import Source

IMAGES, FITTED = 8, 64


@dataclass(frozen=True)
class LayerMaps:
    """components: of the first images, not yet matched with those of another run.  energy: from 0 to 1."""

    layer: str
    components: Float[Tensor, "n 3 h w"]
    energy: Float[Tensor, "n h w"]


@dataclass(frozen=True)
class Maps:
    pictures: UInt8[Tensor, "n c h w"]
    fingerprint: str
    layers: list[LayerMaps]


def maps(source: Source) -> Maps:
    """Components are fitted on the tokens of FITTED images, and shown for IMAGES of them."""
    index = spread(source.test, FITTED)
    seen = layers_of(source.encoder)(source.preprocess(source.test.batch(index)))
    found = []
    for name in finest(seen):
        y = seen[name]
        if y.shape[1] < 3 or y.shape[2] * y.shape[3] < 4:
            raise ValueError(f"layer {name!r} has {y.shape[1]} features at {y.shape[2]} x {y.shape[3]} places: no map")
        found.append(LayerMaps(name, pca_maps(y)[:IMAGES], energy_maps(y[:IMAGES])))
    return Maps(source.test.batch(index[:IMAGES]), source.test.fingerprint, found)


def spread(images: Images, most: int) -> Int64[Tensor, " m"]:
    """Up to `most` images, of a different class each as far as there are classes."""
    index = some(images, len(images))
    if images.labels is not None:
        index = index[torch.randperm(len(index), generator=torch.Generator().manual_seed(1))]
        first: dict[int, int] = {}
        for i, y in zip(index.tolist(), images.labels[index].tolist(), strict=True):
            first.setdefault(y, i)
        chosen = [first[y] for y in sorted(first)]
        index = torch.tensor(chosen + [i for i in index.tolist() if i not in set(chosen)])
    return index[:most]
