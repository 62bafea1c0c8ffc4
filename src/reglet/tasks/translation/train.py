"""One CUT, trained: a generator against a discriminator, and what holds its content.  Park et al., ECCV 2020.

    generator       mean (D(G(a)) - 1)^2  +  NCE(G(a), a) + NCE(G(b), b)     with PatchNCE, eq. 5 with both weights 1
                    mean (D(G(a)) - 1)^2  +  weight * SIM                    with SIM on the generator's blocks
    discriminator   1/2 mean (D(b) - 1)^2 + 1/2 mean D(G(a))^2

Least squares and Adam (0.5, 0.999), the rate constant for the first half and linear to zero in the second, as in the
authors' code.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach import Attachment, attach
from reglet.blocks import SIM
from reglet.networks.translation import Generator, PatchDiscriminator, PatchMLP, patch_nce
from reglet.networks.translation.patch_mlp import draw_places
from reglet.tasks.fit import batches
from reglet.tasks.translation.data import Domains
from reglet.types import Scalar, Terms, total

BETAS = (0.5, 0.999)


class Plan(NamedTuple):
    """sim: blocks of the generator, or None.  identity: PatchNCE, where it is, on images of b too."""

    steps: int
    batch: int
    lr: float
    width: int
    depth: int
    nce: bool
    identity: bool
    places: int
    sim: list[str] | None
    weight: float
    rho: float


class Contrast(nn.Module):
    """PatchNCE over the generator's own maps, averaged over them."""

    def __init__(self, generator: Generator, *, places: int, seed: int) -> None:
        super().__init__()
        self.mlp, self.places = PatchMLP(generator.widths), places
        self.draws = torch.Generator().manual_seed(seed)

    def forward(self, generator: Generator, made: Tensor, source: Tensor) -> Scalar:
        with torch.no_grad():
            kept = generator.features(source)
        maps = generator.features(made)
        where = draw_places(maps, count=self.places, generator=self.draws)
        pairs = zip(self.mlp(maps, where), self.mlp(kept, where), strict=True)
        return torch.stack([patch_nce(v, own) for v, own in pairs]).mean()


def train(plan: Plan, data: Domains, *, seed: int) -> tuple[Generator, tuple[str, ...]]:
    """The generator, and the blocks that SIM stood on.  First weights and batches are the seed's, in every arm."""
    torch.manual_seed(seed)
    channels = data.a.shape[1]
    generator = Generator(width=plan.width, depth=plan.depth, channels=channels)
    critic = PatchDiscriminator(width=plan.width, channels=channels)
    contrast = Contrast(generator, places=plan.places, seed=seed) if plan.nce else None
    sim = attach(generator, plan.sim, SIM(rho=plan.rho, seed=seed), example=data.a[:2]) if plan.sim else None
    extra = [*(contrast.parameters() if contrast else ()), *(sim.parameters() if sim else ())]
    makes = torch.optim.Adam([*generator.parameters(), *extra], lr=plan.lr, betas=BETAS)
    judges = torch.optim.Adam(critic.parameters(), lr=plan.lr, betas=BETAS)
    orders = (
        batches(len(x), batch=plan.batch, steps=plan.steps, seed=seed + i) for i, x in enumerate((data.a, data.b))
    )
    generator.train()
    try:
        for step, (i, j) in enumerate(zip(*orders, strict=True)):
            for optimizer in (makes, judges):
                for group in optimizer.param_groups:
                    group["lr"] = plan.lr * min(1.0, 2 * (1 - step / plan.steps))
            a, b = data.a[i], data.b[j]
            made = generator(a)
            held = {"sim": plan.weight * sim.loss()} if sim else {}
            _step(judges, {"critic": verdicts(critic, made.detach(), b)}, step)
            terms = {"adversarial": ((critic(made) - 1) ** 2).mean(), **held}
            if contrast is not None:
                terms |= _contrasts(contrast, generator, (made, a), b if plan.identity else None, sim)
            _step(makes, terms, step)
        return generator.eval(), tuple(sim.blocks) if sim else ()
    finally:
        if sim:
            sim.remove()


def verdicts(critic: nn.Module, made: Float[Tensor, "n c h w"], real: Float[Tensor, "n c h w"]) -> Scalar:
    return 0.5 * ((critic(real) - 1) ** 2).mean() + 0.5 * (critic(made) ** 2).mean()


def _contrasts(
    contrast: Contrast, generator: Generator, pair: tuple[Tensor, Tensor], b: Tensor | None, sim: Attachment | None
) -> Terms:
    terms = {"nce": contrast(generator, *pair)}
    if b is not None:
        terms["identity"] = contrast(generator, generator(b), b)
    if sim:
        sim.clear()  # these passes are PatchNCE's: SIM has looked at the translation
    return terms


def _step(optimizer: torch.optim.Optimizer, terms: Terms, step: int) -> None:
    value = total(terms)
    if not math.isfinite(float(value.detach())):
        parts = ", ".join(f"{name} {float(term.detach()):g}" for name, term in terms.items())
        raise ValueError(f"the loss is not finite in step {step} ({parts}): try a smaller lr")
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
