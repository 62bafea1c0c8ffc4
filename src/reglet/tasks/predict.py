"""A network and a loss on what it predicts."""

from collections.abc import Callable

from torch import Tensor, nn

from reglet.method import Batch, Method
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar, Terms

Loss = Callable[[Tensor, Batch], Scalar]


class Predict(Method):
    """loss(network(x), batch), with x the batch's only view.  The loss is computed in float32.

    term: the name of the loss in the log.
    """

    def __init__(self, network: nn.Module, loss: Loss, *, term: str) -> None:
        super().__init__()
        self.network, self.loss, self.term = network, loss, term

    def forward(self, batch: Batch) -> Terms:
        (x,) = batch.views
        y = self.network(x)
        with no_autocast(y):
            return {self.term: self.loss(at_least_float32(y), batch)}

    def encode(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x)
        return y
