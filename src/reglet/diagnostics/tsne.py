"""Features in two dimensions, to look at."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.spectrum import check_features


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
