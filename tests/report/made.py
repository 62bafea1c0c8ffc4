"""Gathered data made by hand."""

import torch

from reglet.report.gather import Missing, RunData
from reglet.report.gather.embedding import NEIGHBOURS, Embedding
from reglet.report.gather.repeat import repeat

NOTHING = Missing("it was made by hand")


def empty(name: str = "empty") -> RunData:
    """A run of which nothing is known."""
    gaps = dict.fromkeys(
        ("training", "verdict", "probes", "cost", "embedding", "geometry", "maps", "equivariance", "robustness"),
        NOTHING,
    )
    return RunData(name, repeat({}), latents=None, **gaps)


def cloud(n: int, *, classes: int = 10) -> Embedding:
    """n points with pictures of one grey each."""
    generator = torch.Generator().manual_seed(0)
    places = torch.randn(n, 2, generator=generator)
    grey = torch.linspace(0, 255, n).to(torch.uint8)
    return Embedding(
        {"t-SNE": places, "PCA": places.flip(1)},
        {"class": ((torch.arange(n) % classes).tolist(), [str(c) for c in range(classes)])},
        (torch.arange(n)[:, None] + torch.arange(1, NEIGHBOURS + 1)) % n,
        grey[:, None, None, None].expand(-1, 3, 28, 28),
        None,
        "made",
        n,
        [],
    )
