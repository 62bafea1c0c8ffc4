"""Numbers for how many directions a representation uses: RankMe, alpha-ReQ and LiDAR."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.diagnostics.spectrum import eigenspectrum, singular_values
from reglet.precision import in_float64


def rankme(z: Float[Tensor, "n d"], *, eps: float = 1e-7) -> float:
    """RankMe, how many directions the features use.  Garrido et al., ICML 2023, arXiv:2210.02885, eq. 1.

        exp(-sum_k p_k log p_k),   p_k = sigma_k / |sigma|_1 + eps,   sigma: singular values of z.

    Features are not centred, so a large mean counts as one direction.  Between 1 and min(n, d), up to eps; 0 for zeros.
    It depends on n, so compare only numbers with the same n.

    >>> round(rankme(torch.eye(8)), 3)
    8.0
    """
    check.below_one(eps=eps)
    sigma = singular_values(z)
    if not sigma[0] > 0:
        return 0.0
    p = sigma / sigma.sum() + eps
    return float(torch.special.entr(p).sum().exp())


def alpha_req(z: Float[Tensor, "n d"], *, first: int = 1, last: int | None = None) -> float:
    """alpha-ReQ, how fast the eigenspectrum decays, lambda_k ~ k^-alpha.  Agrawal et al., NeurIPS 2022.

    alpha is minus the slope of log lambda_k over log k, by least squares over k = first..last.  Representations that
    generalise have alpha near 1.  Far above 1, few directions carry everything; far below 1, noise is kept.

    last: None takes every eigenvalue above 1e-12 of the largest.  A finite sample bends the tail of the spectrum down.
        So a value of some tens is steadier if n is not much larger than d.

    >>> z = torch.randn(4096, 64) / torch.arange(1, 65).sqrt()  # eigenvalues 1, 1/2, 1/3, ...
    >>> round(alpha_req(z, last=32), 1)
    1.0
    """
    check.whole(1, first=first, **({} if last is None else {"last": last}))
    spectrum = eigenspectrum(z)
    kept = int((spectrum > 1e-12 * spectrum[0]).sum()) if spectrum[0] > 0 else 0
    last = kept if last is None else min(last, kept)
    if last - first < 1:
        raise ValueError(f"alpha_req needs two eigenvalues or more, from the first=1 on; got {first} to {last}")
    k = torch.arange(first, last + 1, dtype=spectrum.dtype, device=spectrum.device).log()
    y = spectrum[first - 1 : last].log()
    k = k - k.mean()
    return float(-(k * y).sum() / k.square().sum())


def lidar(z: Float[Tensor, "v n d"], *, delta: float = 1e-4, eps: float = 1e-7) -> float:
    """LiDAR, how many directions tell images apart, compared with the differences between views of one image.

    Thilak et al., ICLR 2024, arXiv:2312.04000: linear discriminant analysis, with images as classes and views as
    samples.

        exp(-sum_k p_k log p_k),   p_k = lambda_k / |lambda|_1 + eps,

        lambda:  eigenvalues of Sigma_w^(-1/2) Sigma_b Sigma_w^(-1/2)
        Sigma_b = mean over images of (mu_i - mu)(mu_i - mu)^T          mu_i: mean of an image's views
        Sigma_w = mean over images and views of (z_vi - mu_i)(z_vi - mu_i)^T + delta I

    The paper takes about 50 views of at least 1,000 images.  At most min(n - 1, d); 0 if all images have the same mean.

    >>> z = torch.randn(64, 8)
    >>> bool(lidar(torch.stack([z, z + 0.1 * torch.randn(64, 8)])) > 4)
    True
    """
    check.tensor("z", z, None, None, None)
    check.positive(delta=delta)
    check.below_one(eps=eps)
    if z.shape[0] < 2 or z.shape[1] < 2:
        raise ValueError(f"lidar needs at least two views of two images, got (v, n, d) = {tuple(z.shape)}")
    check.all_finite(embeddings=z)
    z = in_float64(z)
    mu = z.mean(0)
    between = mu - mu.mean(0)
    within = (z - mu).flatten(0, 1)
    eye = torch.eye(z.shape[2], dtype=z.dtype, device=z.device)
    factor, failed = torch.linalg.cholesky_ex(within.T @ within / len(within) + delta * eye)
    if bool(failed):
        size = float(within.abs().max())
        raise ValueError(f"delta={delta} is lost beside views that differ by up to {size:.2g}; expected a larger one")
    # For S = L L^T, L^-1 B L^-T has the eigenvalues of S^(-1/2) B S^(-1/2).  Its smaller Gram matrix has them too.
    white = torch.linalg.solve_triangular(factor, between.T, upper=False) / len(between) ** 0.5
    gram = white @ white.T if white.shape[0] <= white.shape[1] else white.T @ white
    spectrum = torch.linalg.eigvalsh(gram).clamp_min(0)
    if not spectrum[-1] > 0:
        return 0.0
    return float(torch.special.entr(spectrum / spectrum.sum() + eps).sum().exp())
