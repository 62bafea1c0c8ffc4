"""Linear centred kernel alignment: how alike two sets of features of the same samples are.

Kornblith et al., ICML 2019, arXiv:1905.00414:

    CKA(X, Y) = |Y^T X|_F^2 / (|X^T X|_F |Y^T Y|_F)            columns centred

It is 1 for features that differ by a rotation and a scale.  It is biased upwards if n is not much larger than the
widths.  `debiased` replaces each product by its unbiased estimate from the Gram matrices (Song et al., JMLR 2012, eq.
5).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.diagnostics.spectrum import check_features
from reglet.precision import in_float64


def linear_cka(x: Float[Tensor, "n d"], y: Float[Tensor, "n e"], *, debiased: bool = False) -> float:
    """CKA between two layers or two runs.  Rows are the same samples in the same order.

    NaN if one is constant or, debiased, if samples are so few that the estimate of its own product is not positive.

    >>> x = torch.randn(64, 8)
    >>> round(linear_cka(x, 2 * x.roll(1, 1)), 4)  # neither scale nor order of features counts
    1.0
    """
    return float(cka_matrix([x], [y], debiased=debiased)[0, 0])


def cka_matrix(
    xs: Sequence[Float[Tensor, "_ _"]], ys: Sequence[Float[Tensor, "_ _"]], *, debiased: bool = False
) -> Float[Tensor, "a b"]:
    """CKA of each of `xs`, such as the layers of one network, with each of `ys`.

    >>> layers = [torch.randn(64, 8), torch.randn(64, 4), torch.randn(64, 16)]
    >>> cka_matrix(layers, layers).diagonal().round().tolist()
    [1.0, 1.0, 1.0]
    """
    check.flag(debiased=debiased)
    if not len(xs) or not len(ys):
        raise ValueError(f"expected features to compare, got {len(xs)} and {len(ys)} sets of them")
    for z in (*xs, *ys):
        check_features(z, least=4 if debiased else 2)
    n = len(xs[0])
    for z in (*xs, *ys):
        if len(z) != n:
            raise ValueError(f"CKA compares features of the same samples, got {n} and {len(z)} of them")
    left, right = [_centred(x) for x in xs], [_centred(y) for y in ys]
    product = _unbiased if debiased else _biased
    own_left, own_right = [product(x, x) for x in left], [product(y, y) for y in right]
    rows = [
        torch.stack([product(x, y) / (xx.sqrt() * yy.sqrt()) for y, yy in zip(right, own_right, strict=True)])
        for x, xx in zip(left, own_left, strict=True)
    ]
    return torch.stack(rows)


def _centred(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    x = in_float64(x)
    return x - x.mean(0)


def _biased(x: Float[Tensor, "n d"], y: Float[Tensor, "n e"]) -> Float[Tensor, ""]:
    """|Y^T X|_F^2 = <X X^T, Y Y^T>, by the smaller matrices."""
    if x.shape[1] * y.shape[1] <= len(x) ** 2:
        return (y.T @ x).square().sum()
    return ((x @ x.T) * (y @ y.T)).sum()


def _unbiased(x: Float[Tensor, "n d"], y: Float[Tensor, "n e"]) -> Float[Tensor, ""]:
    n = len(x)
    k, q = ((z @ z.T).fill_diagonal_(0) for z in (x, y))
    value = (k * q).sum() + k.sum() * q.sum() / ((n - 1) * (n - 2)) - 2 * (k.sum(0) @ q.sum(0)) / (n - 2)
    return value / (n * (n - 3))
