"""Any method, plus a loss on the blocks inside it."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach import PerBlock, Where, attach
from reglet.method import Batch, Method
from reglet.types import BlockLoss, Terms


class Regularized(Method):
    """`method`'s terms, and `weight` times a block loss on the blocks `where`, as the term `name`.

        Regularized(JointEmbedding(vit, loss), "backbone.blocks.*", SIM(), weight=5e-3, example=x)

    where: blocks by their names in the method; in a nest of wrappers, in the innermost one.
    name: the class of the loss in lower case, if not given.
    example: images, or a Batch, run once in eval mode to build the heads that a loss like SIM has.  They are parameters
        of this module.  Without it they are built by `build(example)` or else in the first training step, and an
        optimizer or DDP made before that does not know them.

    A copy is attached as the original is.
    """

    def __init__(
        self,
        method: Method,
        where: Where,
        loss: BlockLoss | PerBlock,
        *,
        weight: float,
        name: str | None = None,
        example: Tensor | Batch | None = None,
    ) -> None:
        super().__init__()
        self.method, self.loss, self.weight = method, loss, weight
        self.name = type(loss).__name__.lower() if name is None else name
        self.heads = nn.ModuleDict()
        self._attachment = attach(innermost(method), where, loss, name=self.name)
        if example is not None:
            self.build(example)

    @property
    def backbone(self) -> nn.Module:
        return self.method.get_submodule("backbone")

    def build(self, example: Tensor | Batch) -> None:
        """Run the method once in eval mode to build the heads.  What it counts and keeps is as before."""
        if isinstance(example, Tensor):
            labels = torch.zeros(len(example), dtype=torch.int64, device=example.device)
            example = Batch((example, example), n_global=2, labels=labels)
        method = innermost(self.method)
        trained = {name for name, _ in method.named_parameters()}
        kept = {key: v.clone() for key, v in method.state_dict().items() if key not in trained}
        self._attachment.build(example)
        method.load_state_dict(kept, strict=False)
        self.heads = self._attachment.heads

    def forward(self, batch: Batch) -> Terms:
        terms: Terms = self.method(batch)
        if self.name in terms:
            raise ValueError(f"there is a term {self.name!r} already: give this one another name=")
        value = self._attachment.loss()
        if not self.heads and self.training and torch.is_grad_enabled():
            self.heads = self._attachment.heads
        return terms | {self.name: self.weight * value}

    def encode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return self.method.encode(x)

    def after_step(self, step: int, steps: int) -> None:
        self.method.after_step(step, steps)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Hooks do not survive deepcopy and pickle, on purpose; what they fed does, and gets new ones here.
        super().__setstate__(state)
        self._attachment = self._attachment.moved(innermost(self.method))


def innermost(method: Method) -> Method:
    """The method inside all wrappers."""
    while isinstance(inner := getattr(method, "method", None), Method):
        method = inner
    return method
