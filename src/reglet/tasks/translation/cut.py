"""CUT: a generator against a discriminator, and what holds its content.  Park et al., ECCV 2020, arXiv:2007.15651.

    generator       mean (D(G(a)) - 1)^2  +  NCE(G(a), a) + NCE(G(b), b)     with PatchNCE, eq. 5 with both weights 1
                    mean (D(G(a)) - 1)^2  +  weight * SIM                    with SIM on the generator's blocks
    discriminator   1/2 mean (D(b) - 1)^2 + 1/2 mean D(G(a))^2

Both networks take their step at the same time, by one optimizer: the discriminator's term does not reach the generator,
and the generator's terms do not reach the discriminator.  The authors' code steps the discriminator first and lets the
generator meet the new one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from reglet.method import Batch, Method
from reglet.networks.translation import Generator, PatchDiscriminator, PatchMLP, draw_places, patch_nce
from reglet.types import Scalar, Terms


class Places(NamedTuple):
    """What a step draws for the whole batch: the places that PatchNCE compares, the same on every rank."""

    seed: int

    def take(self, which: slice) -> "Places":
        return self


class CUT(Method):
    """Batches have two views: images of domain a, and as many of domain b.  Their draw, if any, says which `Places`.

    nce: PatchNCE between what is made of a and a.  identity: also between what is made of b and b.
    places: of each map, that PatchNCE compares.
    """

    def __init__(
        self, generator: Generator, critic: PatchDiscriminator, *, nce: bool, identity: bool, places: int
    ) -> None:
        super().__init__()
        self.generator, self.critic, self.identity, self.places = generator, critic, identity, places
        self.mlp = PatchMLP(generator.widths) if nce else None

    def forward(self, batch: Batch) -> Terms:
        a, b = batch.views
        made = self.generator(a)
        terms = {"critic": verdicts(self.critic, made.detach(), b)}
        fixed = {name: p.detach() for name, p in self.critic.named_parameters()}
        terms["adversarial"] = (functional_call(self.critic, fixed, (made,)) - 1).square().mean()
        if self.mlp is not None:
            random = torch.Generator().manual_seed(batch.draws[0].seed) if batch.draws else None
            with unwatched(self.generator):
                terms["nce"] = self._contrast(self.mlp, made, a, random)
                if self.identity:
                    terms["identity"] = self._contrast(self.mlp, self.generator(b), b, random)
        return terms

    def _contrast(self, mlp: PatchMLP, made: Tensor, source: Tensor, random: torch.Generator | None) -> Scalar:
        """PatchNCE over the generator's own maps, averaged over them."""
        with torch.no_grad():
            kept = self.generator.features(source)
        maps = self.generator.features(made)
        where = draw_places(maps, count=self.places, generator=random)
        pairs = zip(mlp(maps, where), mlp(kept, where), strict=True)
        return torch.stack([patch_nce(v, own) for v, own in pairs]).mean()

    def encode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Images of a in the manner of b."""
        y: Tensor = self.generator(x)
        return y


def verdicts(critic: nn.Module, made: Float[Tensor, "n c h w"], real: Float[Tensor, "n c h w"]) -> Scalar:
    return 0.5 * (critic(real) - 1).square().mean() + 0.5 * critic(made).square().mean()


@contextmanager
def unwatched(generator: Generator) -> Iterator[None]:
    """In eval mode, so that a loss on blocks does not see these passes: it looks at the translation alone.

    The generator has neither dropout nor statistics, so it computes the same.
    """
    mode = generator.training
    try:
        generator.eval()
        yield
    finally:
        generator.train(mode)
