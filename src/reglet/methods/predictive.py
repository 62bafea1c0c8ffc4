"""Predict embeddings from other embeddings, with a regularizer against collapse in place of a teacher.

    L = mean (prediction - target)^2 + weight R(z)              LeWM, arXiv:2603.19312: R = SIGReg, weight 0.1

What is predicted from what is the predictor's affair: `MaskedTokens` hides parts of an image (I-JEPA), `NextEmbedding`
the future of a sequence (LeWM).  The target comes from the same encoder as what it is predicted from.  The text of LeWM
and its authors' code send the gradient through both, and so do we.  lightly 1.6 detaches the target: `detach=True`.
The authors' code has weight 0.09 where their text has 0.1.

R is of a batch of vectors: each place, or each moment, is one "view" of its own.  A batch of all of them together would
let the encoder pass with codes of the place alone, which are predicted without an error.
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

    embeddings: what is kept from collapsing, (places or moments, samples, features).

    >>> made = Forecast(torch.zeros(4, 2, 8), torch.ones(4, 2, 8), torch.zeros(3, 4, 8))
    >>> (made.prediction - made.target).square().mean().item()
    1.0
    """

    prediction: Float[Tensor, "n ..."]
    target: Float[Tensor, "n ..."]
    embeddings: Float[Tensor, "v n d"]


class Predictive(Method):
    """The error of `predictor`, and `weight` times a regularizer of the embeddings.  There is no teacher.

    regularizer: any of `reglet.losses` that takes one view: VISReg, SIGReg, SWD, ...  To train on several ranks as on
        one, give it `gather=True`.
    predictor: `MaskedTokens` or `NextEmbedding`, or a module of your own that makes a `Forecast` of the backbone and a
        batch.  It has the networks that are thrown away after training.
    weight: a number, a schedule, or "share:0.3" of the gradient on the backbone.  LeWM's 0.1 is for SIGReg, which
        grows with the batch.  Regularizers that are means, such as VISReg, want about 1.
    detach: no gradient through the target.

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
                f"the regularizer is of the embeddings of one view, such as VISReg or SIGReg; "
                f"{type(regularizer).__name__} compares several"
            )
        self.backbone, self.regularizer, self.predictor = backbone, regularizer, predictor
        self.balance, self.detach = SharedWeight(weight), detach

    def forward(self, batch: Batch) -> Terms:
        return self.objective(self.predictor(self.backbone, batch))

    @torch.compiler.disable(reason="view losses have kernels of their own, and questions that read numbers")
    def objective(self, made: Forecast) -> Terms:
        """The loss of what was predicted."""
        z = made.embeddings
        with no_autocast(z):
            error = self._errors(made).mean()
            kept = _terms(self.regularizer, at_least_float32(z))
            weight = self.balance.value(total(kept), error, on=self.backbone.parameters())
            return {"prediction": error} | {name: weight * term for name, term in kept.items()}

    def surprise(self, batch: Batch) -> Float[Tensor, " n"]:
        """How wrong the prediction is for each sample.  What the encoder has not seen before surprises it."""
        made = self.predictor(self.backbone, batch)
        with no_autocast(made.embeddings):
            return self._errors(made).flatten(1).mean(1)

    def encode(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        y: Tensor = self.backbone(x)
        return y

    def _errors(self, made: Forecast) -> Float[Tensor, "n ..."]:
        target = made.target.detach() if self.detach else made.target
        return (at_least_float32(made.prediction) - at_least_float32(target)).square()


def _terms(regularizer: nn.Module, z: Float[Tensor, "v n d"]) -> Terms:
    """Of a loss on views; or of any module that maps rows (n, d) to a number, averaged over views."""
    if isinstance(regularizer, ViewLoss):
        return regularizer.terms(z)
    values: list[Scalar] = [regularizer(rows) for rows in z]
    return {type(regularizer).__name__.lower(): torch.stack(values).mean()}
