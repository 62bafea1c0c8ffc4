"""Nearest neighbours; whether they have the same class in another domain (LatentDR's figure 3, as numbers); and all
samples in two dimensions, to look at."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from reglet import check
from reglet.diagnostics.spectrum import check_features
from reglet.precision import at_least_float32, in_float64, unit_length


def nearest(
    query: Float[Tensor, "n d"], keys: Float[Tensor, "m d"], *, k: int, own: bool = False, chunk: int = 1024
) -> Int64[Tensor, "n k"]:
    """The indices of the k keys with the largest cosine, nearest first.

    own: the queries are the keys, and a sample is not its own neighbour.

    >>> nearest(torch.tensor([[1.0, 0.1]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), k=2).tolist()
    [[1, 0]]
    """
    check_features(query)
    check_features(keys)
    check.tensor("keys", keys, None, query.shape[1])
    check.whole(1, k=k, chunk=chunk)
    check.flag(own=own)
    if own and len(query) != len(keys):
        raise ValueError(f"own says that the queries are the keys; got {len(query)} and {len(keys)} of them")
    if not 1 <= k <= len(keys) - own:
        raise ValueError(f"k must be between 1 and the {len(keys) - own} possible neighbours, got {k}")
    keys = _unit(keys)
    found = []
    for start, rows in zip(range(0, len(query), chunk), _unit(query).split(chunk), strict=True):
        similarity = rows @ keys.T
        if own:
            similarity.diagonal(start).fill_(-torch.inf)
        found.append(similarity.topk(k, dim=1).indices)
    return torch.cat(found)


def _unit(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return unit_length(at_least_float32(z)).float()


class AcrossDomains(NamedTuple):
    """Shares of the k nearest neighbours, averaged over samples.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> seen = neighbours_across_domains(z, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), k=1)
    >>> seen.same_class, seen.other_domain
    (1.0, 1.0)
    """

    neighbours: Int64[Tensor, "n k"]
    same_class: float
    other_domain: float
    same_class_elsewhere: float  # of the neighbours in another domain, those of the sample's class


def neighbours_across_domains(
    z: Float[Tensor, "n d"], labels: Int[Tensor, " n"], domain: Int[Tensor, " n"], *, k: int = 20
) -> AcrossDomains:
    """What a sample's neighbours have in common with it: content, or where it comes from.

    same_class_elsewhere is NaN where every neighbour is from the sample's own domain.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> neighbours_across_domains(z, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), k=1).same_class_elsewhere
    1.0
    """
    index = nearest(z, z, k=k, own=True)
    check.class_numbers(len(z), labels=labels, domain=domain)
    same = labels[index] == labels[:, None]
    other = domain[index] != domain[:, None]
    elsewhere = float(in_float64(same[other]).mean()) if bool(other.any()) else float("nan")
    return AcrossDomains(index, float(in_float64(same).mean()), float(in_float64(other).mean()), elsewhere)


def tsne(
    z: Float[Tensor, "n d"], *, components: int = 2, perplexity: float = 30.0, seed: int = 0
) -> Float[Tensor, "n k"]:
    """scikit-learn's t-SNE, started from the principal components.  Distances between clusters mean little.

    The SER paper shows 20 classes, clean and under defocus blur; the SMI paper three components.

    >>> tsne(torch.randn(20, 8), perplexity=5.0).shape
    torch.Size([20, 2])
    """
    check_features(z, least=4)
    check.whole(1, components=components)
    check.between(1, min(3, z.shape[1]), components=components)  # scikit-learn's method has no more than 3
    check.whole(0, seed=seed)
    check.positive(perplexity=perplexity)
    if not perplexity < len(z):
        raise ValueError(f"perplexity is a number of neighbours below n = {len(z)}, got {perplexity}")
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ImportError("t-SNE needs scikit-learn: pip install reglet[data]") from error
    model = TSNE(components, perplexity=perplexity, init="pca", random_state=seed)
    z = in_float64(z.detach()).cpu()
    z = z - z[:1]  # not the mean: rounding it would leave samples that are one point off the origin
    spread = z.abs().max()
    if not spread > 0:
        raise ValueError(f"all {len(z)} samples are the same point: there is nothing to lay out")
    # The layout does not depend on the scale, and scikit-learn's float32 cannot hold squares of very large numbers.
    return torch.from_numpy(model.fit_transform((z / spread).float().numpy()))
