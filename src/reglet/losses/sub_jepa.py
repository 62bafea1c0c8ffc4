"""Sub-JEPA's regularizer: SIGReg in fixed random subspaces.  arXiv:2605.09241; formula as in intcomp/Sub-JEPA.

    P_k (s x d) with orthonormal rows, k = 1..K, drawn once;      L = 1/K sum_k SIGReg(Z P_k^T)

Only the projections on the subspaces should be normal, not the whole embedding.  s = d / K if not given.  The authors
draw slices for each subspace.  Here all subspaces use the same slices, each in its own coordinates.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.epps_pulley import EppsPulley
from reglet.losses.product import product
from reglet.losses.sliced import sliced_mean
from reglet.losses.slices import Slices
from reglet.types import Terms


def _subspaces(
    count: int, size: int, d: int, seed: int, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "k s d"]:
    """Drawn and made orthonormal in float64 on the CPU, so that they are the same on every device."""
    with torch.inference_mode(False), torch.no_grad():
        generator = torch.Generator("cpu").manual_seed(seed)
        normal = torch.empty(count, d, size, dtype=torch.float64, device="cpu").normal_(generator=generator)
        return torch.linalg.qr(normal).Q.mT.contiguous().to(dtype).to(device)


_known_subspaces = lru_cache(maxsize=16)(_subspaces)


class SubspaceSIGReg(OnViews):
    """subspaces: K.  subspace_dim: s; if not given, d / K rounded down.  seed: of subspaces and slices.

    The other arguments are SIGReg's.

    >>> z = torch.randn(64, 8)
    >>> bool(SubspaceSIGReg(slices=64)(z) < SubspaceSIGReg(slices=64)(0 * z))
    True
    """

    least_views = 1

    def __init__(
        self,
        *,
        subspaces: int = 4,
        subspace_dim: int | None = None,
        slices: int = 1024,
        knots: int = 17,
        t_max: float = 3.0,
        shared_slices: bool = True,
        seed: int = 0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.whole(1, subspaces=subspaces)
        if subspace_dim is not None:
            check.whole(1, subspace_dim=subspace_dim)
        self.subspaces, self.subspace_dim, self.seed = subspaces, subspace_dim, seed
        self.test = EppsPulley(knots, t_max)
        self.slices = Slices(slices, shared=shared_slices, seed=seed)

    @torch.compiler.disable
    def bases(self, like: Float[Tensor, "*_ d"]) -> Float[Tensor, "k s d"]:
        """The subspaces for embeddings like these, as orthonormal rows.

        They are kept, but not those made under a mode such as FakeTensorMode, which are not real.
        """
        d = like.shape[-1]
        size = max(1, d // self.subspaces) if self.subspace_dim is None else self.subspace_dim
        if size > d:
            raise ValueError(f"SubspaceSIGReg: subspace_dim={size} is more than the {d} features")
        make = _subspaces if torch._C._len_torch_dispatch_stack() > 0 else _known_subspaces
        return make(self.subspaces, size, d, self.seed, like.device, like.dtype)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        v, n, d = z.shape
        bases = self.bases(z)
        inside = product(z.reshape(v * n, d), bases.flatten(0, 1).T).view(v, n, len(bases), -1)
        inside = inside.permute(2, 0, 1, 3).reshape(len(bases) * v, n, -1)
        return {"sigreg": sliced_mean(inside, self.slices, self.test, gathered=self.gather, group=self.group)}
