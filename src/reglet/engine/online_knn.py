"""Scores while training runs: weighted kNN, and the rank, of the features of a few thousand images."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from reglet.data.images import Images
from reglet.diagnostics import rankme
from reglet.engine.order import ORDER, generator
from reglet.probes.knn import knn_probe

Encode = Callable[[Float[Tensor, "n c h w"]], Float[Tensor, "n d"]]


class OnlineKNN:
    """Neighbours are training images; those to be classified are `test`'s, or training images held aside for it.

    preprocess: uint8 images -> what the encoder takes.
    """

    def __init__(
        self, train: Images, preprocess: Callable[[Tensor], Tensor], *, test: Images | None = None, most: int = 2000
    ) -> None:
        if train.labels is None or (test is not None and test.labels is None):
            raise ValueError("an online kNN needs labels")
        shuffled = torch.randperm(len(train), generator=generator(0, ORDER))
        if test is None:
            cut = min(most, len(train) // 2)
            self.parts = [(train, shuffled[cut : cut + most]), (train, shuffled[:cut])]
        else:
            others = torch.randperm(len(test), generator=generator(0, ORDER))
            self.parts = [(train, shuffled[:most]), (test, others[:most])]
        self.preprocess = preprocess

    @torch.no_grad()
    def score(self, encode: Encode, module: nn.Module, *, device: torch.device) -> dict[str, float]:
        """knn: accuracy of the features of `module`, which is left in the mode it was in.  rank: their RankMe."""
        mode = module.training
        module.eval()
        (train, train_labels), (test, test_labels) = (self._features(encode, *part, device) for part in self.parts)
        module.train(mode)
        k = min(20, len(train))
        return {"knn": knn_probe(train, train_labels, test, test_labels, k=k), "rank": rankme(test)}

    def _features(
        self, encode: Encode, images: Images, index: Int64[Tensor, " n"], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        assert images.labels is not None
        rows = [encode(self._prepared(images.batch(part), device)).float() for part in index.split(256)]
        return torch.cat(rows), images.labels[index].to(device)

    def _prepared(self, images: UInt8[Tensor, "n c h w"], device: torch.device) -> Tensor:
        return self.preprocess(images.to(device))
