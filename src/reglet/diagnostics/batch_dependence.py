"""How much the other samples of a batch decide about an embedding.

In training, batch norm takes its statistics from the batch.  So an embedding depends on the other samples, its mates:
a little in large batches, and in small ones so much that a network may recognise a batch instead of an image.  In
evaluation, batch norm takes running statistics.  A network that relied on mates then behaves differently.
"""

from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.precision import in_float64


def batch_share(z: Float[Tensor, "batches n d"]) -> float:
    """The share of the embeddings' variance that comes from the batch.  z: n samples, each embedded among different
    mates in each of the `batches`.

        V_mates / (V_mates + V_samples),    V_samples corrected for what mates leave in a mean of few batches

    0 for a network without batch norm; 1 if mates decide everything, or if samples do not differ at all.

    >>> import torch
    >>> z = torch.randn(64, 8)
    >>> round(batch_share(torch.stack([z, z, z])), 4)  # mates do not matter
    0.0
    """
    check.tensor("z", z, None, None, None)
    check.all_finite(embeddings=z)
    b, n, _ = z.shape
    if b < 2 or n < 2:
        raise ValueError(f"batch_share needs two samples or more in two batches or more, got {tuple(z.shape)}")
    z = in_float64(z)
    mates = float(z.var(0).sum(-1).mean())
    samples = max(0.0, float(z.mean(0).var(0).sum()) - mates / b)
    return mates / (mates + samples) if mates > 0 else 0.0


def mode_gap(train: Float[Tensor, "n d"], evaluation: Float[Tensor, "n d"]) -> float:
    """The mean squared distance between the embeddings of both modes, divided by their variance in training mode.

    Near 0 if running statistics fit the data; above 1 if changing the mode moves an embedding further than changing the
    image.  Infinite if training mode does not vary and the two differ.

    >>> import torch
    >>> z = torch.randn(64, 8)
    >>> mode_gap(z, z)
    0.0
    """
    check.tensors(["n d", "n d"], train=train, evaluation=evaluation)
    check.all_finite(embeddings_in_training=train, embeddings_in_evaluation=evaluation)
    train, evaluation = in_float64(train), in_float64(evaluation)
    apart = float((train - evaluation).square().sum(1).mean())
    spread = float(train.var(0, correction=0).sum())
    if spread == 0:
        return 0.0 if apart == 0 else float("inf")
    return apart / spread
