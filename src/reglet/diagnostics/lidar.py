"""LiDAR: how many directions tell images apart, against what differs between views of one image.

Thilak et al., ICLR 2024, arXiv:2312.04000: linear discriminant analysis whose classes are images, their samples views.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def lidar(z: Float[Tensor, "v n d"], *, delta: float = 1e-4, eps: float = 1e-7) -> float:
    """exp(-sum_k p_k log p_k),   p_k = lambda_k / |lambda|_1 + eps,

        lambda:  eigenvalues of Sigma_w^(-1/2) Sigma_b Sigma_w^(-1/2)
        Sigma_b = mean over images of (mu_i - mu)(mu_i - mu)^T          mu_i: mean of an image's views
        Sigma_w = mean over images and views of (z_vi - mu_i)(z_vi - mu_i)^T + delta I

    The paper takes 50 views or so of 1,000 images or more.  At most min(n - 1, d); 0 where all images look the same.
    """
    if z.shape[0] < 2 or z.shape[1] < 2:
        raise ValueError(f"lidar needs at least two views of two images, got (v, n, d) = {tuple(z.shape)}")
    if not bool(torch.isfinite(z).all()):
        raise ValueError(f"{int((~torch.isfinite(z)).sum())} of {z.numel()} embeddings are not finite")
    z = z.double()
    mu = z.mean(0)
    between = mu - mu.mean(0)
    within = (z - mu).flatten(0, 1)
    eye = torch.eye(z.shape[2], dtype=z.dtype, device=z.device)
    factor = torch.linalg.cholesky(within.T @ within / len(within) + delta * eye)
    # L^-1 B L^-T has the eigenvalues of S^(-1/2) B S^(-1/2) for S = L L^T; so has its Gram matrix, where n < d.
    white = torch.linalg.solve_triangular(factor, between.T, upper=False) / len(between) ** 0.5
    gram = white @ white.T if white.shape[0] <= white.shape[1] else white.T @ white
    spectrum = torch.linalg.eigvalsh(gram).clamp_min(0)
    if not spectrum[-1] > 0:
        return 0.0
    return float(torch.special.entr(spectrum / spectrum.sum() + eps).sum().exp())
