"""Which samples lie together: nearest neighbours, whether they are of the same class in another domain (LatentDR's
figure 3, as numbers), and all of them in two dimensions, to look at."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor

from reglet.diagnostics.spectrum import check_features
from reglet.precision import in_float64


def nearest(
    query: Float[Tensor, "n d"], keys: Float[Tensor, "m d"], *, k: int, own: bool = False, chunk: int = 1024
) -> Int64[Tensor, "n k"]:
    """Indices of the k keys with the largest cosine, nearest first.

    own: the queries are the keys, and no sample is its own neighbour.
    """
    check_features(query)
    check_features(keys)
    if not 1 <= k <= len(keys) - own:
        raise ValueError(f"k must be between 1 and the {len(keys) - own} possible neighbours, got {k}")
    keys = F.normalize(keys.float(), dim=1)
    found = []
    for start, rows in zip(range(0, len(query), chunk), F.normalize(query.float(), dim=1).split(chunk), strict=True):
        similarity = rows @ keys.T
        if own:
            similarity.diagonal(start).fill_(-torch.inf)
        found.append(similarity.topk(k, dim=1).indices)
    return torch.cat(found)


class AcrossDomains(NamedTuple):
    """Shares of the k nearest neighbours, averaged over samples."""

    neighbours: Int64[Tensor, "n k"]
    same_class: float
    other_domain: float
    same_class_elsewhere: float  # of the neighbours in another domain, those of the sample's class


def neighbours_across_domains(
    z: Float[Tensor, "n d"], labels: Int[Tensor, " n"], domain: Int[Tensor, " n"], *, k: int = 20
) -> AcrossDomains:
    """What a sample's neighbours have in common with it: content, or where it comes from.

    same_class_elsewhere is NaN where every neighbour is from the sample's own domain.
    """
    index = nearest(z, z, k=k, own=True)
    same = labels[index] == labels[:, None]
    other = domain[index] != domain[:, None]
    elsewhere = float(in_float64(same[other]).mean()) if bool(other.any()) else float("nan")
    return AcrossDomains(index, float(in_float64(same).mean()), float(in_float64(other).mean()), elsewhere)


def tsne(
    z: Float[Tensor, "n d"], *, components: int = 2, perplexity: float = 30.0, seed: int = 0
) -> Float[Tensor, "n k"]:
    """scikit-learn's t-SNE, started from the principal components.  Distances between clusters mean little.

    The SER paper shows 20 classes, clean and under defocus blur; the SMI paper three components.
    """
    check_features(z, least=4)
    if not 0 < perplexity < len(z):
        raise ValueError(f"perplexity is a number of neighbours below n = {len(z)}, got {perplexity}")
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ImportError("t-SNE needs scikit-learn: pip install reglet[data]") from error
    model = TSNE(components, perplexity=perplexity, init="pca", random_state=seed)
    return torch.from_numpy(model.fit_transform(z.detach().cpu().float().numpy()))
