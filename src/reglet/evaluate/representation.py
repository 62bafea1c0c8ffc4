"""Properties of the features that need no labels."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reglet import diagnostics

SAMPLES = 5000  # at most: RankMe depends on n, so that a fixed one is easier to compare; and pairs are counted


Numbers = dict[str, int | float | None]


def representation(z: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], *, seed: int = 0) -> Numbers:
    """The properties, from at most SAMPLES features.  None if one is not defined, as the slope of one eigenvalue."""
    index = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:SAMPLES].to(z.device)
    z, labels = z[index], labels[index]
    std = diagnostics.feature_std(z)
    share = diagnostics.explained_variance(z)
    return {
        "samples": len(z),
        "features": z.shape[1],
        "rankme": diagnostics.rankme(z),
        "components_90": int((share < 0.9).sum()) + 1 if share[-1] > 0 else 0,
        "alpha_req": _alpha(z),
        "mean_std": float(std.mean()),
        "constant_features": int((std <= 1e-6 * std.max()).sum()),
        "class_alignment": diagnostics.class_alignment(z, labels),
        "uniformity": diagnostics.uniformity(z),
    }


def _alpha(z: Float[Tensor, "n d"]) -> float | None:
    try:
        return diagnostics.alpha_req(z)
    except ValueError:  # a collapsed spectrum has no slope; the other numbers show it
        return None
