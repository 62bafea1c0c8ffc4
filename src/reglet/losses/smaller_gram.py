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
        roots, inverse = _roots_and_inverses(eigenvalues)
        value = (roots.sum() + spoilt).to(z)
        if not gradient:
            return value, []
        n, d = z.shape
        if max(n, d) > 2 * min(n, d):
            return value, [apply((vectors * inverse) @ vectors.T, wide).to(z)]
        # U V^T, whose second factor is exact before it is rounded: its product may then be of the type of z
        if n <= d:
            return value, [vectors.to(z) @ (vectors.T @ wide).mul_(inverse[:, None]).to(z)]
        return value, [(wide @ vectors).mul_(inverse).to(z) @ vectors.T.to(z)]

    return shortcut(formula, kernel, z, ranks=Ranks((len(z),)))


def mean_nuclear_norm(z: Float[Tensor, "v n d"]) -> Scalar:
    """1/n sum_i |Z_i|_* of the few rows that each sample has, by v x v Gram matrices."""

    def formula(z: Tensor) -> Tensor:
        wide = in_float64(z)
        gram, spoilt = finite((wide[:, None] * wide[None]).sum(dim=3).permute(2, 0, 1))
        return (_roots(torch.linalg.eigvalsh(gram)).sum(dim=1).mean() + spoilt).to(z)

    def kernel(z: Tensor, *, gradient: bool, **_: object) -> tuple[Tensor, list[Tensor]]:
        n = z.shape[1]
        rows = in_float64(z).transpose(0, 1)
        gram, spoilt = finite(torch.bmm(rows, rows.mT))
        eigenvalues, vectors = torch.linalg.eigh(gram)
        roots, inverse = _roots_and_inverses(eigenvalues)
        value = (roots.sum() / n + spoilt).to(z)
        if not gradient:
            return value, []
        polar = torch.bmm(vectors * (inverse / n)[:, None], vectors.mT)
        return value, [torch.bmm(polar, rows).transpose(0, 1).to(z)]

    return shortcut(formula, kernel, z, ranks=Ranks((z.shape[1],)))


def _roots(eigenvalues: Float[Tensor, "*_ m"]) -> Float[Tensor, "*_ m"]:
    """Their square roots.  An eigenvalue that is a rounding error of the largest gives 0, without gradient."""
    kept = eigenvalues.detach() > _noise(eigenvalues.detach())
    return eigenvalues.where(kept, 1).sqrt() * kept


def _roots_and_inverses(eigenvalues: Float[Tensor, "*_ m"]) -> tuple[Float[Tensor, "*_ m"], Float[Tensor, "*_ m"]]:
    """`_roots`, and 1 / roots where there are any; without a gradient."""
    inverse = eigenvalues.rsqrt().where(eigenvalues > _noise(eigenvalues), 0)
    return eigenvalues * inverse, inverse


def _noise(eigenvalues: Float[Tensor, "*_ m"]) -> Float[Tensor, "*_ 1"]:
    about = torch.finfo(eigenvalues.dtype)
    return (eigenvalues[..., -1:] * (eigenvalues.shape[-1] * about.eps)).clamp_min(about.tiny)


def log_unevenness(z: Float[Tensor, "v n d"]) -> Scalar:
    """sum_v log(|G - c I|_F^2 / (tr G)^2 + 1/m) for the smaller Gram matrices G of size m, c = tr G / m.

    That is log |G / tr G|_F^2, which is least, log 1/m, where all eigenvalues are equal.  tr G and c have no gradient:
    the columns of Z have length 1 or 0, so that tr G is constant.  In this form the gradient keeps its digits near the
    minimum.
    """
    m = min(z.shape[1:])

    def formula(z: Tensor) -> Tensor:
        uneven, trace = _uneven(torch.stack([smaller_gram(view) for view in z.unbind()]))
        return (in_float64(uneven.square().sum(dim=(1, 2))) / in_float64(trace).square() + 1 / m).log().sum().to(z)

    def kernel(z: Tensor, *, gradient: bool, **_: object) -> tuple[Tensor, list[Tensor]]:
        uneven, trace = _uneven(torch.bmm(z, z.mT) if z.shape[1] <= z.shape[2] else torch.bmm(z.mT, z))
        square = in_float64(trace).square()
        inner = in_float64(uneven.square().sum(dim=(1, 2))) / square + 1 / m
        value = inner.log().sum().to(z)
        if not gradient:
            return value, []
        uneven *= (4 / (square * inner)).to(z)[:, None, None]
        return value, [torch.bmm(uneven, z) if z.shape[1] <= z.shape[2] else torch.bmm(z, uneven)]

    return shortcut(formula, kernel, z, ranks=Ranks((z.shape[1],)))


def _uneven(gram: Float[Tensor, "v m m"]) -> tuple[Float[Tensor, "v m m"], Float[Tensor, " v"]]:
    """G - c I, and tr G; without rows at all, 1."""
    trace = gram.detach().diagonal(dim1=1, dim2=2).sum(dim=1)
    even = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device) * (trace / gram.shape[1])[:, None, None]
    return gram - even, trace.clamp_min(1)


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
    spoilt = 0 * matrix.detach().sum()
    if readable(spoilt) and spoilt.item() == 0:
        return matrix, spoilt
    return matrix.nan_to_num(0.0, 0.0, 0.0), spoilt


def cholesky(matrix: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    """The lower factor.  Refuses a matrix that is not positive definite in float64."""
    root, wrong = torch.linalg.cholesky_ex(matrix)
    if readable(wrong) and bool(wrong != 0):
        raise ValueError(
            "the covariance is singular in float64; expected embeddings with smaller values or a higher rank"
        )
    return root
