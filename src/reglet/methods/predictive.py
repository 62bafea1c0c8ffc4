"""Predicts embeddings from other embeddings.  A regularizer prevents collapse, in place of a teacher.

    L = mean (prediction - target)^2 + weight R(z)              LeWM, arXiv:2603.19312: R = SIGReg, weight 0.1

The predictor decides what is predicted from what: `MaskedTokens` hides parts of an image (I-JEPA), `NextEmbedding` the
future of a sequence (LeWM).  Target and input come from the same encoder.  LeWM's paper and code send the gradient
through both, and so do we.  lightly 1.6 detaches the target: `detach=True`.  The authors' code has weight 0.09, their
paper 0.1.

R takes each place, or each moment, as a separate batch ("view").  If all were one batch, the encoder could encode only
the place, which is predicted without error.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.method import Batch, Method
from reglet.precision import at_least_float32, no_autocast
from reglet.schedules import Weight
from reglet.shares import SharedWeight
from reglet.types import Scalar, Terms, ViewLoss, total

HIDDEN = 2048  # width between features and embeddings, as in LeWM


class Forecast(NamedTuple):
    """prediction, target: of the same shape, samples first.

    embeddings: the input of the regularizer, (places or moments, samples, features).

    >>> made = Forecast(torch.zeros(4, 2, 8), torch.ones(4, 2, 8), torch.zeros(3, 4, 8))
    >>> (made.prediction - made.target).square().mean().item()
    1.0
    """

    prediction: Float[Tensor, "n ..."]
    target: Float[Tensor, "n ..."]
    embeddings: Float[Tensor, "v n d"]


class Predictive(Method):
    """The error of `predictor`, and `weight` times a regularizer of the embeddings.  There is no teacher.

    regularizer: any of `reglet.losses` that takes one view: VISReg, SIGReg, SWD, ...  Give it `gather=True` to train on
        several ranks as on one.
    predictor: `MaskedTokens`, `NextEmbedding`, or a module of your own that makes a `Forecast` from the backbone and a
        batch.  It holds the networks that are not needed after training.
    weight: a number, a schedule, or "share:0.3" of the gradient on the backbone.  LeWM's 0.1 is for SIGReg, which
        grows with the batch.  Regularizers that are means, such as VISReg, need about 1.
    detach: no gradient flows through the target.

    >>> from reglet.losses import SIGReg
    >>> from reglet.methods import NextEmbedding, Predictive
    >>> from reglet.networks.conv1d import ConvNet1d
    >>> net = ConvNet1d(channels=6)
    >>> method = Predictive(net, SIGReg(slices=64), predictor=NextEmbedding(net.dim, frame=16, depth=1, heads=2))
    >>> list(method(Batch([torch.randn(8, 6, 64)])))
    ['prediction', 'sigreg']
    """

    def __init__(
        self,
        backbone: nn.Module,
        regularizer: nn.Module,
        *,
        predictor: nn.Module,
        weight: Weight = 0.1,
        detach: bool = False,
    ) -> None:
        super().__init__()
        check.flag(detach=detach)
        if getattr(regularizer, "least_views", 1) != 1:
            raise ValueError(
                f"the regularizer must take one view, as VISReg or SIGReg do; "
                f"{type(regularizer).__name__} compares several"
            )
        self.backbone, self.regularizer, self.predictor = backbone, regularizer, predictor
        self.balance, self.detach = SharedWeight(weight), detach

    def forward(self, batch: Batch) -> Terms:
        return self.objective(self.forecast(batch))

    def forecast(self, batch: Batch) -> Forecast:
        """What is predicted, what it should be, and the embeddings."""
        made: Forecast = self.predictor(self.backbone, batch)
        return made

    @torch.compiler.disable(reason="view losses have their own kernels, and checks that read numbers")
    def objective(self, made: Forecast) -> Terms:
        """The loss of a forecast."""
        z = made.embeddings
        with no_autocast(z):
            error = self._errors(made).mean()
            kept = _terms(self.regularizer, at_least_float32(z))
            weight = self.balance.value(total(kept), error, on=self.backbone.parameters())
            return {"prediction": error} | {name: weight * term for name, term in kept.items()}

    def surprise(self, batch: Batch) -> Float[Tensor, " n"]:
        """The error of the prediction for each sample.  It is large for samples unlike those trained on."""
        made = self.forecast(batch)
        with no_autocast(made.embeddings):
            return self._errors(made).flatten(1).mean(1)

    def _errors(self, made: Forecast) -> Float[Tensor, "n ..."]:
        target = made.target.detach() if self.detach else made.target
        return (at_least_float32(made.prediction) - at_least_float32(target)).square()


def _terms(regularizer: nn.Module, z: Float[Tensor, "v n d"]) -> Terms:
    """The terms of a loss on views; or of a module that maps rows (n, d) to a number, averaged over views."""
    if isinstance(regularizer, ViewLoss):
        return regularizer.terms(z)
    values: list[Scalar] = [regularizer(rows) for rows in z]
    return {type(regularizer).__name__.lower(): torch.stack(values).mean()}
