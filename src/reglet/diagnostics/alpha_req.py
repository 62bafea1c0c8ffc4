"""alpha-ReQ: how fast the eigenspectrum decays.  Agrawal et al., NeurIPS 2022.

    lambda_k ~ k^-alpha

Representations that generalise have alpha near 1: far above it few directions carry all, far below it noise is kept.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.spectrum import eigenspectrum


def alpha_req(z: Float[Tensor, "n d"], *, first: int = 1, last: int | None = None) -> float:
    """-slope of log lambda_k over log k, by least squares over k = first..last.

    last: None takes every eigenvalue above 1e-12 of the largest.  A finite sample bends the tail of the spectrum down,
        so for n not much larger than d a last of some tens is steadier.
    """
    spectrum = eigenspectrum(z)
    kept = int((spectrum > 1e-12 * spectrum[0]).sum()) if spectrum[0] > 0 else 0
    last = kept if last is None else min(last, kept)
    if first < 1 or last - first < 1:
        raise ValueError(f"alpha_req needs two eigenvalues or more, from the first=1 on; got {first} to {last}")
    k = torch.arange(first, last + 1, dtype=spectrum.dtype, device=spectrum.device).log()
    y = spectrum[first - 1 : last].log()
    k = k - k.mean()
    return float(-(k * y).sum() / k.square().sum())
