"""Losses on the spectrum of a matrix, by the Gram matrix of its smaller side, in float64.

Z Z^T (n x n) and Z^T Z (d x d) have the same eigenvalues except for zeros, so the smaller one is enough.  It is
computed in float64: squaring singular values costs half of the digits, and float32 would lose the small ones.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.check import readable
from reglet.dist import Ranks
from reglet.losses.product import product
from reglet.losses.shortcut import shortcut
from reglet.precision import in_float64
from reglet.types import Scalar

SAFE = 300.0  # norm of scale Z^T Z up to which float32 leaves five digits of log det(I + ...) and four of its gradient


def smaller_gram(z: Float[Tensor, "n d"]) -> Float[Tensor, "m m"]:
    """Z Z^T or Z^T Z, whichever is smaller.  The caller chooses the dtype."""
    n, d = z.shape
    return product(z, z.T) if n <= d else product(z.T, z)


def apply(matrix: Float[Tensor, "m m"], z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """`matrix`, a function of `smaller_gram(z)`, times z, from the side where it fits."""
    return matrix @ z if z.shape[0] <= z.shape[1] else z @ matrix


def nuclear_norm(z: Float[Tensor, "n d"]) -> Scalar:
    """|Z|_*, the sum of the singular values; its gradient is U V^T.  Zero singular values have no gradient."""

    def formula(z: Tensor) -> Tensor:
        gram, spoilt = finite(smaller_gram(in_float64(z)))
        return (_roots(torch.linalg.eigvalsh(gram)).sum() + spoilt).to(z)

    def kernel(z: Tensor, *, gradient: bool, **_: object) -> tuple[Tensor, list[Tensor]]:
        wide = in_float64(z)
        gram, spoilt = finite(smaller_gram(wide))
        eigenvalues, vectors = torch.linalg.eigh(gram)
        roots = _roots(eigenvalues)
        value = (roots.sum() + spoilt).to(z)
        if not gradient:
            return value, []
        inverse = torch.where(roots > 0, 1 / roots.where(roots > 0, 1), 0)
        return value, [apply((vectors * inverse) @ vectors.T, wide).to(z)]

    return shortcut(formula, kernel, z, ranks=Ranks((len(z),)))


def nuclear_norms(z: Float[Tensor, "v n d"]) -> Float[Tensor, " n"]:
    """|Z_i|_* of the few rows that each sample has, by v x v Gram matrices."""
    wide = in_float64(z)
    gram = (wide[:, None] * wide[None]).sum(dim=3).permute(2, 0, 1)
    gram, spoilt = finite(gram)
    return (_roots(torch.linalg.eigvalsh(gram)).sum(dim=1) + spoilt).to(z)


def _roots(eigenvalues: Float[Tensor, "*_ m"]) -> Float[Tensor, "*_ m"]:
    """Their square roots.  An eigenvalue that is a rounding error of the largest gives 0, without gradient."""
    m = eigenvalues.shape[-1]
    noise = m * torch.finfo(eigenvalues.dtype).eps * eigenvalues.detach()[..., -1:].clamp_min(0)
    kept = eigenvalues.detach() > noise.clamp_min(torch.finfo(eigenvalues.dtype).tiny)
    return eigenvalues.where(kept, 1).sqrt() * kept


def unevenness(z: Float[Tensor, "n d"]) -> Scalar:
    """|G - c I|_F^2 for the smaller Gram matrix G of size m, c = tr G / m: 0 where all eigenvalues are equal.

    c has no gradient.  Where the columns of Z have length 1, tr G is constant, and this is |G|_F^2 up to a constant.
    Its gradient keeps its digits near the minimum.
    """

    def formula(z: Tensor) -> Tensor:
        return _uneven(z).square().sum()

    def kernel(z: Tensor, *, gradient: bool, **_: object) -> tuple[Tensor, list[Tensor]]:
        uneven = _uneven(z)
        return uneven.square().sum(), [apply(uneven, z).mul_(4)] if gradient else []

    return shortcut(formula, kernel, z, ranks=Ranks((len(z),)))


def _uneven(z: Float[Tensor, "n d"]) -> Float[Tensor, "m m"]:
    gram = smaller_gram(z)
    level = gram.detach().diagonal().mean()
    return gram - level * torch.eye(len(gram), dtype=z.dtype, device=z.device)


def log_det(z: Float[Tensor, "n d"], scale: float) -> Scalar:
    """log det(I + scale Z^T Z), which is log det(I + scale Z Z^T); gradient 2 scale Z (I + scale Z^T Z)^-1."""

    def formula(z: Tensor) -> Tensor:
        root, spoilt = _cholesky(in_float64(z), scale)
        return (2 * root.diagonal().log().sum() + spoilt).to(z)

    def kernel(z: Tensor, *, gradient: bool, **_: object) -> tuple[Tensor, list[Tensor]]:
        gram = smaller_gram(z)
        safe = readable(gram) and bool(scale * torch.linalg.matrix_norm(gram) < SAFE)
        wide = z if safe else in_float64(z)
        root, spoilt = _cholesky(wide, scale, gram if safe else None)
        value = 2 * root.diagonal().log().sum() + spoilt
        grads = [apply(torch.cholesky_inverse(root), wide).mul_(2 * scale).to(z)] if gradient else []
        return value.to(z), grads

    return shortcut(formula, kernel, z, ranks=Ranks((len(z),)))


def _cholesky(
    z: Float[Tensor, "n d"], scale: float, gram: Float[Tensor, "m m"] | None = None
) -> tuple[Float[Tensor, "m m"], Scalar]:
    gram, spoilt = finite(smaller_gram(z) if gram is None else gram)
    return cholesky(scale * gram + torch.eye(len(gram), dtype=z.dtype, device=z.device)), spoilt


def finite(matrix: Float[Tensor, "*_ m m"]) -> tuple[Float[Tensor, "*_ m m"], Scalar]:
    """The matrix with 0 for what is not finite, which LAPACK refuses; and NaN if there was any, otherwise 0."""
    return matrix.nan_to_num(0.0, 0.0, 0.0), 0 * matrix.detach().sum()


def cholesky(matrix: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    """The lower factor.  Refuses a matrix that is not positive definite in float64."""
    root, wrong = torch.linalg.cholesky_ex(matrix)
    if readable(wrong) and bool(wrong != 0):
        raise ValueError(
            "the covariance is singular in float64; expected embeddings with smaller values or a higher rank"
        )
    return root
