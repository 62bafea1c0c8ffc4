"""The papers' formulas, written naively: what every loss of reglet is held against, and its speed measured against.

Nothing here imports reglet.  Plain torch, differentiable as often as one likes, in the dtype of the input; the tests
call it in float64.  z is (v, n, d), directions are unit vectors (k, d), functions of two views take (n, d) twice.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor


def mean_over_pairs(z: Tensor, n_global: int, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Over the unordered pairs of views of which at least one is global."""
    v = len(z)
    found = [loss(z[i], z[j]) for i in range(v) for j in range(i + 1, v) if i < n_global]
    return torch.stack(found).mean()


def off_diagonal(m: Tensor) -> Tensor:
    return m[~torch.eye(len(m), dtype=torch.bool)]


# VISReg, SWD


def quantiles(n: int, positions: str = "weibull", clamp: float = 0.0) -> Tensor:
    """q_i = Phi^-1(u_i), with u_i = i / (n + 1), or Hazen's (i - 1/2) / n."""
    i = torch.arange(1, n + 1, dtype=torch.float64)
    u = i / (n + 1) if positions == "weibull" else (i - 0.5) / n
    return torch.special.ndtri(u.clamp(clamp, 1 - clamp))


def ordered(p: Tensor) -> Tensor:
    """p (v, n, k) in ascending order over the samples."""
    return p.sort(dim=1).values


def deviations(z: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """zc and std_j = |zc_j| / sqrt(n) + eps: biased, eps outside the root."""
    zc = z - z.mean(dim=1, keepdim=True)
    return zc, torch.linalg.vector_norm(zc, dim=1, keepdim=True) / math.sqrt(z.shape[1]) + eps


def visreg_center(z: Tensor) -> Tensor:
    return z.mean(dim=1).square().mean()


def visreg_scale(z: Tensor, eps: float = 1e-6) -> Tensor:
    return (deviations(z, eps)[1] - 1).square().mean()


def visreg_shape(
    z: Tensor, directions: Tensor, eps: float = 1e-6, detach: bool = True, positions: str = "weibull"
) -> Tensor:
    zc, std = deviations(z, eps)
    zn = zc / (std.detach() if detach else std)
    p = ordered(zn @ directions.T)
    return (p - quantiles(z.shape[1], positions).to(z)[:, None]).square().mean()


def sliced_wasserstein(z: Tensor, directions: Tensor, clamp: float = 1e-4) -> Tensor:
    p = ordered(z @ directions.T)
    return (p - quantiles(z.shape[1], clamp=clamp).to(z)[:, None]).square().mean()


def invariance(z: Tensor, n_global: int) -> Tensor:
    """mean_vij (z_vij - mean_{g global} z_gij)^2, the gradient flowing through both."""
    return (z - z[:n_global].mean(dim=0)).square().mean()


# SIGReg


def epps_pulley(z: Tensor, directions: Tensor, knots: int = 17, t_max: float = 3.0) -> Tensor:
    """N int phi(t) |mean_n exp(i t x_n) - phi(t)|^2 dt over [-t_max, t_max] by the trapezoid rule, folded at 0."""
    t = torch.linspace(0, t_max, knots, dtype=z.dtype)
    c = torch.full_like(t, 2 * t_max / (knots - 1))
    c[0] = c[-1] = t_max / (knots - 1)
    phi = torch.exp(-t.square() / 2)
    x = (z @ directions.T)[..., None] * t  # (v, n, k, knots)
    distance = (x.cos().mean(dim=1) - phi).square() + x.sin().mean(dim=1).square()
    return z.shape[1] * (distance * c * phi).sum(dim=-1).mean()


def epps_pulley_exact(x: Tensor) -> Tensor:
    """The same statistic of (n,) numbers, integrated over the whole line in closed form."""
    pairs = torch.exp(-(x[:, None] - x[None]).square() / 2).mean()
    alone = torch.exp(-x.square() / 4).mean()
    return len(x) * math.sqrt(2 * math.pi) * (pairs - math.sqrt(2) * alone + 1 / math.sqrt(3))


# VICReg


def vicreg_variance(z: Tensor, gamma: float = 1.0, eps: float = 1e-4) -> Tensor:
    return F.relu(gamma - torch.sqrt(z.var(dim=0, unbiased=True) + eps)).mean()


def vicreg_covariance(z: Tensor) -> Tensor:
    n, d = z.shape
    zc = z - z.mean(dim=0)
    return off_diagonal(zc.T @ zc / (n - 1)).square().sum() / d


def vicreg(
    z: Tensor, n_global: int, gamma: float = 1.0, eps: float = 1e-4, variant: str = "official"
) -> tuple[Tensor, Tensor, Tensor]:
    """Invariance, variance, covariance, unweighted."""
    if variant == "visreg":
        flat = z.flatten(0, 1)
        hinge = F.relu(gamma - (flat.std(dim=0, unbiased=True) + 1e-6))
        return z.new_zeros(()), hinge.square().mean(), vicreg_covariance(flat)
    squares = mean_over_pairs(z, n_global, lambda a, b: (a - b).square().sum(dim=1).mean())
    inv = squares if variant == "paper" else squares / z.shape[2]
    var = torch.stack([vicreg_variance(view, gamma, eps) for view in z]).mean()
    cov = torch.stack([vicreg_covariance(view) for view in z]).mean()
    return inv, (var if variant == "official" else 2 * var), 2 * cov


# Rectified LpJEPA


def rdmreg(z: Tensor, directions: Tensor, x: Tensor) -> Tensor:
    """MINIMAL.md of YilunKuang/rectified-lp-jepa, with given samples x (n, d) of the target, the same for all views."""
    sorted_x = (x @ directions.T).sort(dim=0).values
    return (ordered(z.relu() @ directions.T) - sorted_x).square().mean()


def rectified_invariance(z: Tensor, n_global: int) -> Tensor:
    return mean_over_pairs(z.relu(), n_global, lambda a, b: (a - b).square().sum() / a.numel())


# Weak-SIGReg


def weak_sigreg(z: Tensor, sketch: Tensor) -> Tensor:
    """kreasof-ai/sigreg's README, its 1e-6 beside n - 1 left out.  sketch: (k, d), used where d > k."""
    if z.shape[1] > len(sketch):
        z = torch.stack([torch.stack([(row * s).sum() for s in sketch]) for row in z])
    zc = z - z.mean(dim=0)
    k = z.shape[1]
    cov = torch.einsum("ni,nj->ij", zc, zc) / (len(z) - 1)
    return (cov - torch.eye(k, dtype=z.dtype)).square().sum().sqrt()


# Barlow Twins


def barlow_correlation(z1: Tensor, z2: Tensor, eps: float = 1e-5) -> Tensor:
    a, b = ((z - z.mean(dim=0)) / torch.sqrt(z.var(dim=0, unbiased=False) + eps) for z in (z1, z2))
    return a.T @ b / len(z1)


def barlow_correlation_visreg(z1: Tensor, z2: Tensor, eps: float = 1e-6) -> Tensor:
    """Unbiased deviation, eps outside the root, and yet divided by n: a perfect pair has (n - 1) / n."""
    a, b = ((z - z.mean(dim=0)) / (z.std(dim=0, unbiased=True) + eps) for z in (z1, z2))
    return a.T @ b / len(z1)


def barlow_parts(c: Tensor) -> Tensor:
    return torch.stack([(c.diagonal() - 1).square().sum(), off_diagonal(c).square().sum()])


def barlow_twins(z: Tensor, n_global: int, eps: float = 1e-5, variant: str = "official") -> tuple[Tensor, Tensor]:
    """Sum over the diagonal of (c_ii - 1)^2, and over the rest of c_ij^2, unweighted."""
    if variant == "visreg":
        pairs = [(z[0], z[0])] if len(z) == 1 else list(pairwise(z))
        on, off = torch.stack([barlow_parts(barlow_correlation_visreg(a, b)) for a, b in pairs]).mean(dim=0)
    else:
        parts: list[Tensor] = []
        for i in range(n_global):
            parts += [barlow_parts(barlow_correlation(z[i], z[j], eps)) for j in range(i + 1, len(z))]
        on, off = torch.stack(parts).mean(dim=0)
    return on, off


# NT-Xent


def ntxent(z1: Tensor, z2: Tensor, temperature: float = 0.5) -> Tensor:
    """-log softmax of the other view's logit among the 2n - 1 others, mean over the 2n rows."""
    n = len(z1)
    u = F.normalize(torch.cat([z1, z2]), dim=1)
    logits = (u @ u.T / temperature).masked_fill(torch.eye(2 * n, dtype=torch.bool), -torch.inf)
    positive = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(logits, positive)


# SMI


def pearson(x: Tensor, y: Tensor) -> Tensor:
    """(n, d), (m, d) -> (n, m): the correlation over features of each row with each."""
    x, y = x - x.mean(dim=1, keepdim=True), y - y.mean(dim=1, keepdim=True)
    return (x @ y.T) / torch.outer(x.norm(dim=1), y.norm(dim=1))


def information(rho: Tensor, eps: float = 1e-6) -> Tensor:
    return -0.5 * torch.log((1 - rho.square()).clamp_min(0) + eps)


def smi(
    z1: Tensor,
    z2: Tensor,
    on: str = "sq",
    off: str = "sq",
    pairs: tuple[str, ...] = ("12", "11", "22"),
    eps: float = 1e-6,
    target: float = 1.0,
    signed: bool = False,
) -> Tensor:
    """(L_on, sum of the L_off): sums over samples, unweighted."""
    positive = pearson(z1, z2).diagonal()
    I12 = information(positive.clamp_min(0) if signed else positive, eps)
    aligned = {"sq": (target - I12).square(), "hinge": F.relu(target - I12).square(), "neg": -I12}[on].sum()
    views = {"1": z1, "2": z2}
    redundant = z1.new_zeros(())
    for pair in pairs:
        I_km = information(off_diagonal(pearson(views[pair[0]], views[pair[1]])), eps)
        redundant = redundant + (I_km.square() if off == "sq" else I_km).sum()
    return torch.stack([aligned, redundant])


# KoLeo


def koleo(z: Tensor, eps: float = 1e-8) -> Tensor:
    """-mean_i log(min_{j != i} |u_i - u_j| + eps) of unit rows."""
    u = F.normalize(z, dim=1)
    apart = (u[:, None] - u[None]).square().sum(dim=2).detach()
    nearest = apart.masked_fill(torch.eye(len(z), dtype=torch.bool), torch.inf).argmin(dim=1)
    return -torch.log(torch.linalg.vector_norm(u - u[nearest], dim=1) + eps).mean()


# MMCR


def mmcr(z: Tensor, weight: float = 5e-3, normalize: bool = True) -> tuple[Tensor, Tensor]:
    """-|C|_* of the centroids, and weight times the mean over samples of |Z_b|_*; z (v, n, d)."""
    z = F.normalize(z, dim=2) if normalize else z
    own = torch.linalg.svdvals(z.transpose(0, 1)).sum() / z.shape[1]
    return -torch.linalg.svdvals(z.mean(dim=0)).sum(), weight * own


# FroSSL


def frossl_regularizer(z: Tensor) -> Tensor:
    """log |Z^T Z / tr|_F^2 of columns of length 1."""
    z = F.normalize(z, dim=0)
    c = z.T @ z
    return torch.log((c / c.trace()).square().sum())


def frossl(z: Tensor) -> tuple[Tensor, Tensor]:
    v, _, d = z.shape
    u = F.normalize(z, dim=1)
    gap = torch.stack([v * d * F.mse_loss(view, u.mean(dim=0)) for view in u]).sum()
    return torch.stack([frossl_regularizer(view) for view in z]).sum(), gap


# EMP-SSL


def coding_rate(z: Tensor, eps: float = 0.2, normalize: bool = True) -> Tensor:
    """1/2 log det(I + d / (n eps) Z^T Z)."""
    z = F.normalize(z, dim=1) if normalize else z
    n, d = z.shape
    return torch.logdet(torch.eye(d, dtype=z.dtype) + d / (n * eps) * z.T @ z) / 2


def cosine_to_the_mean(z: Tensor, normalize: bool = True) -> Tensor:
    z = F.normalize(z, dim=2) if normalize else z
    return F.cosine_similarity(z, z.mean(dim=0, keepdim=True), dim=2).mean()


# W-MSE


def whitened(z: Tensor, eps: float = 1e-4) -> Tensor:
    """(z - mean) W^T with W^T W the inverse of (1 - eps) cov + eps I, W the inverse of its Cholesky factor."""
    shrunk = (1 - eps) * torch.cov(z.T).reshape(z.shape[1], -1) + eps * torch.eye(z.shape[1], dtype=z.dtype)
    return (z - z.mean(dim=0)) @ torch.linalg.inv(torch.linalg.cholesky(shrunk)).T


def wmse(z0: Tensor, z1: Tensor, eps: float = 1e-4) -> Tensor:
    a, b = (F.normalize(whitened(z, eps), dim=1) for z in (z0, z1))
    return (a - b).square().sum(dim=1).mean()


# TiCo


def tico(z: Tensor, n_global: int, before: Tensor, beta: float = 0.9, rho: float = 8.0) -> tuple[Tensor, Tensor]:
    """1 - <z, z'>, and rho mean_i z_i^T C z_i, where C takes in the rows of all views and has no gradient."""
    u = F.normalize(z, dim=2)
    rows = u.flatten(0, 1)
    C = beta * before + (1 - beta) * (rows.T @ rows).detach() / len(rows)
    apart = mean_over_pairs(u, n_global, lambda a, b: 1 - (a * b).sum(dim=1).mean())
    return apart, rho * ((rows @ C) * rows).sum(dim=1).mean()


# BHEP


def bhep(z: Tensor, beta: float) -> Tensor:
    """Henze and Wagner's statistic over n, of z as it is."""
    n, d = z.shape
    pairs = sum(torch.exp(-(beta**2) / 2 * (z - z[j]).square().sum(dim=1)).sum() for j in range(n)) / n**2
    alone = torch.exp(-(beta**2) * z.square().sum(dim=1) / (2 * (1 + beta**2))).sum() / n
    return pairs - 2 / (1 + beta**2) ** (d / 2) * alone + 1 / (1 + 2 * beta**2) ** (d / 2)


# Radial-VCReg


def radial(z: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the lengths with chi, without its constant, and their entropy by m-spacings."""
    n, d = z.shape
    r = z.norm(dim=1).clamp(min=eps)
    m = round(math.sqrt(n))
    s = r.sort().values
    entropy = torch.stack([torch.log((n + 1) / m * (s[i + m] - s[i]) + eps) for i in range(n - m)]).sum() / (n - m)
    return (r**2 / 2 - (d - 1) * r.log()).mean(), entropy
