"""What pushes a collapsed representation apart again: five losses near the point where all embeddings are equal.

    python examples/collapse.py --out runs/collapse

The collapse figure of the VISReg paper, in its setting: 2 views of 64 embeddings in 512 dimensions, 64 slices; the
embeddings have norm r, and r goes to 0.  Left, what the paper plots: the mean norm of a sample's gradient.  Right, what
decides: the part of the step -g that points away from the centre, positive where it undoes the collapse.

    outward = mean over samples of  -<g, zc> / |zc|,    zc = z - mean over the view

Measured (seed 0).  SIGReg's gradient vanishes with r, those of VICReg and SWD do not depend on it, those of Barlow
Twins and VISReg grow as 1/r until eps stops them.  But nearly all of VISReg's is its shape term, which moves samples
sideways and, with its detached std, inward from r = 6e-4 up; there the scale term pushes outward with the constant
2 / (v n sqrt(d)) = 6.9e-4, which is less, and at 64 samples the sum points inward all the way to r = 1.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import reglet
from reglet.types import Terms

LOSSES: dict[str, Callable[[], Callable[[Tensor], Terms]]] = {  # built anew for every r: the same slices each time
    "VICReg": lambda: reglet.VICRegLoss(variant="visreg").terms,
    "Barlow Twins": lambda: reglet.BarlowTwinsLoss(variant="visreg").terms,
    "SWD": lambda: reglet.SWD(slices=64).terms,
    "SIGReg": lambda: reglet.SIGReg(slices=64).terms,
    "VISReg": lambda: reglet.VISReg(slices=64).terms,
}


class Push(NamedTuple):
    norm: float  # mean over samples of |g|
    outward: float  # mean over samples of -<g, zc> / |zc|


def embeddings(*, views: int = 2, n: int = 64, d: int = 512, seed: int = 0) -> Float[Tensor, "v n d"]:
    """Unit vectors, in float64 so that 1e-7 times them can still be centred."""
    z = torch.randn(views, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(z, dim=2)


def push(terms: Callable[[Tensor], Terms], z: Float[Tensor, "v n d"]) -> dict[str, Push]:
    """By term, and in "total"."""
    z = z.detach().requires_grad_()
    parts = terms(z)
    away = F.normalize(z.detach() - z.detach().mean(1, keepdim=True), dim=2, eps=1e-30)
    found, total = {}, torch.zeros_like(z)
    for name, value in parts.items():
        (g,) = torch.autograd.grad(value, z, retain_graph=True)
        total += g
        found[name] = _push(g, away)
    return found | {"total": _push(total, away)}


def _push(g: Tensor, away: Tensor) -> Push:
    return Push(g.norm(dim=2).mean().item(), -(g * away).sum(2).mean().item())


def sweep(radii: list[float], z: Float[Tensor, "v n d"]) -> dict[str, list[dict[str, Push]]]:
    """Loss -> for every radius, its terms' pushes."""
    return {name: [push(build(), r * z) for r in radii] for name, build in LOSSES.items()}


def draw(path: Path, radii: list[float], pushes: dict[str, list[dict[str, Push]]]) -> None:
    figure = Figure(figsize=(11, 4.6), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, (name, rows) in zip(("C0", "C1", "C2", "C3", "C4"), pushes.items(), strict=True):
        left.loglog(radii, [row["total"].norm for row in rows], color=colour, label=name)
        _signed(right, radii, [row["total"].outward for row in rows], color=colour, label=name)
    rows = pushes["VISReg"]
    scale = [row["scale"].outward for row in rows]
    right.loglog(radii, scale, color="black", linestyle="--", linewidth=1, label="VISReg, scale alone")
    left.set_title("gradient norm of a sample")
    right.set_title("its outward part (dotted: inward)")
    right.set_ylim(1e-8, 1e4)
    for axes in (left, right):
        axes.set_xlabel("radius of the embeddings, r")
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path)


def _signed(axes: Axes, radii: list[float], values: list[float], *, color: str, label: str) -> None:
    """|values| on logarithmic axes, solid where they are positive and dotted where not."""
    y = torch.tensor(values)
    axes.loglog(radii, y.abs().where(y > 0, torch.nan), color=color, label=label)
    axes.loglog(radii, y.abs().where(y <= 0, torch.nan), color=color, linestyle=":")


def main(out: Path, per_decade: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    radii = [10 ** (i / per_decade) for i in range(-7 * per_decade, 1)]
    pushes = sweep(radii, embeddings())
    with (out / "collapse.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("loss", "term", "r", "gradient_norm", "outward"))
        for name, rows in pushes.items():
            table.writerows((name, term, r, *p) for r, row in zip(radii, rows, strict=True) for term, p in row.items())
    draw(out / "collapse.png", radii, pushes)
    print(f"{'r':>8}" + "".join(f"{name:>22}" for name in pushes))
    for i, r in enumerate(radii):
        cells = (f"{rows[i]['total'].norm:.2e} ({rows[i]['total'].outward:+.1e})" for rows in pushes.values())
        print(f"{r:8.0e}" + "".join(f"{cell:>22}" for cell in cells))
    print(f"mean gradient norm of a sample (its outward part); drawn in {out / 'collapse.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("runs/collapse"))
    parser.add_argument("--quick", action="store_true", help="one radius a decade instead of four")
    given = parser.parse_args()
    main(given.out, 1 if given.quick else 4)
