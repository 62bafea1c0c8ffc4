"""Any method, plus a loss on the blocks inside it."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from reglet.attach import Layout, PerBlock, Where, attach
from reglet.attach.compare import Projector
from reglet.attach.features import On, Regularizer
from reglet.attach.link import Stop
from reglet.method import Batch, Method, MethodWrapper, innermost
from reglet.schedules import Weight
from reglet.shares import SharedWeight
from reglet.types import BlockLoss, Terms, total


class Regularized(MethodWrapper):
    """The terms of `method`, and the term `name`: `weight` times a block loss on the blocks `where`.

        Regularized(JointEmbedding(vit, loss), "backbone.blocks.*", SIM(), weight=5e-3, example=x)

    where: blocks by their names in the innermost method.
    to, teacher, inputs, stop, projector, on, rho, layout: see `attach`.  A teacher gets the arguments of the part
        `inputs` of the method, by default its backbone.
    weight: a number, a schedule (see `reglet.set_step`), or "share:0.3" of the gradient on the backbone.
    name: by default the class of the loss in lower case.
    example: images, or a Batch.  It is run once in eval mode to build the heads that a loss like SIM has.  They are
        parameters of this module.  Without it they are built by `build(example)`, or in the first training step; then
        an optimizer or DDP made before does not know them.

    A copy is attached like the original.

    >>> from reglet import SIM
    >>> from reglet.backbones import resnet8
    >>> from reglet.methods import Supervised
    >>> x = torch.rand(4, 3, 16, 16)
    >>> method = Regularized(Supervised(resnet8(), classes=3), "backbone.layer*.*", SIM(), weight=5e-3, example=x)
    >>> list(method(Batch([x], labels=torch.arange(4) % 3)))
    ['cross_entropy', 'sim']
    """

    unclipped: ClassVar[tuple[str, ...]] = ("attachment.heads",)

    def __init__(
        self,
        method: Method,
        where: Where | Mapping[str, Where],
        loss: BlockLoss | PerBlock | Regularizer,
        *,
        weight: Weight,
        name: str | None = None,
        example: Tensor | Batch | None = None,
        to: Where | None = None,
        teacher: nn.Module | None = None,
        inputs: str = "backbone",
        stop: Stop = "to",
        projector: Projector = "auto",
        on: On | None = None,
        rho: int | float = 1.0,
        layout: Layout | tuple[Layout, Layout] | None = None,
    ) -> None:
        super().__init__()
        self.method, self.balance = method, SharedWeight(weight)
        self.name = type(loss).__name__.lower() if name is None else name
        self.attachment = attach(
            innermost(method),
            where,
            loss,
            to=to,
            teacher=teacher,
            inputs="" if teacher is None else inputs,
            stop=stop,
            projector=projector,
            on=on,
            rho=rho,
            layout=layout,
            name=self.name,
        )
        self.attachment.averaging = False  # DDP averages the heads
        if example is not None:
            self.build(example)

    @property
    def blocks(self) -> list[str]:
        """The names of the blocks that the loss is on."""
        return list(self.attachment.blocks)

    @property
    def heads(self) -> nn.ModuleDict:
        return self.attachment.heads

    def build(self, example: Tensor | Batch) -> None:
        """Run the method once in eval mode to build the heads.  Its buffers do not change."""
        if isinstance(example, Tensor):
            labels = torch.zeros(len(example), dtype=torch.int64, device=example.device)
            example = Batch((example, example), n_global=2, labels=labels)
        method = innermost(self.method)
        trained = {name for name, _ in method.named_parameters()}
        kept = {key: v.clone() for key, v in method.state_dict().items() if key not in trained}
        self.attachment.build(example)
        method.load_state_dict(kept, strict=False)

    def forward(self, batch: Batch) -> Terms:
        terms: Terms = self.method(batch)
        if self.name in terms:
            raise ValueError(f"there is a term {self.name!r} already: give this one another name=")
        loss = self.attachment.loss()
        return terms | {self.name: self.balance(loss, total(terms), on=innermost(self.method).parameters())}

    def remove(self) -> None:
        """Remove the loss from the blocks.  The method inside is then as it was before."""
        self.attachment.remove()
