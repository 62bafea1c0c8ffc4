"""Any method, held near the weights that it started from, so that the network keeps what it knew.

theta are the weights of the backbone, theta_0 those at the start.  f and f_0 are the two networks; f_0 is frozen and in
eval mode.  x is every view that the method gives its backbone:

    l2sp       1/2 |theta - theta_0|^2 over the trained weights                   Li et al., ICML 2018, arXiv:1802.01483
    features   mean over x of d(f(x), f_0(x))                                     the pooled features
    class      the same of the class tokens after the last block
    gram       mean over x and tokens j, k of (<z_j, z_k> - <u_j, u_k>)^2         DINOv3's anchor, arXiv:2508.10104

d is 1 - cos or, with distance="l2", the mean squared difference.  z and u are tokens of the last block in f and f_0,
scaled to length 1, without class tokens and registers.  L2-SP also has an L2 penalty on new layers.  Here the
optimizer's weight decay does that.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from reglet import check
from reglet.attach import Layout, matching, watch
from reglet.attach.hooks import Hook, recomputing
from reglet.attach.watch import Watch
from reglet.backbones.protocol import prefix_tokens
from reglet.blocks import L2, Cosine, Gram
from reglet.dist import sum_over_ranks
from reglet.method import Batch, Method, MethodWrapper, innermost
from reglet.methods.predictive import Predictive
from reglet.precision import at_least_float32
from reglet.probes.layer_decay import block_names
from reglet.schedules import Weight
from reglet.shares import SharedWeight
from reglet.types import Scalar, Terms, total

Distance = Literal["cosine", "l2"]
KINDS = ("features", "class", "gram", "l2sp")


class Preserved(MethodWrapper):
    """The terms of `method`, and for each of `keep` a term "preserve.NAME" that holds the backbone near its start.

        Preserved(JointEmbedding(vit, loss), ["features", "gram"], weight="share:0.2")

    weight: a number, a schedule or a share of the gradient on the backbone; or one for each of `keep`.  Several shares
        are measured one after another.
    distance: of features and class tokens.
    block: whose class tokens and Gram matrices are taken; by default the last.
    start: the network to stay near; by default a copy of the current backbone.

    The start is a part of this module.  It is saved, never trained, and not exported.  At first all terms and their
    gradients are 0, except for batch norms, which use the statistics of the batch in training and their own in the
    start.

    >>> from reglet.backbones import ConvNet
    >>> from reglet.losses import VICRegLoss
    >>> from reglet.methods import JointEmbedding
    >>> method = Preserved(JointEmbedding(ConvNet(), VICRegLoss()), ["l2sp", "gram"], weight=1.0)
    >>> sorted(method(Batch(torch.randn(2, 4, 3, 16, 16).unbind(), n_global=2)))
    ['covariance', 'invariance', 'preserve.gram', 'preserve.l2sp', 'variance']
    """

    def __init__(
        self,
        method: Method,
        keep: Sequence[str],
        *,
        weight: Weight | Mapping[str, Weight] = "share:0.2",
        distance: Distance = "cosine",
        block: str = "",
        start: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if not keep or len(set(keep)) != len(keep):
            raise ValueError(f"keep is one or more of {', '.join(KINDS)}, each once; got {', '.join(keep) or 'none'}")
        for kind in keep:
            check.choice("keep", kind, KINDS)
        check.choice("distance", distance, get_args(Distance))
        if set(keep) != {"l2sp"} and isinstance(innermost(method), Predictive):
            raise ValueError(
                f"preserve={','.join(keep)}: a method that predicts reads tokens of masked images, not the features of "
                "whole ones; take l2sp"
            )
        weights = weight if isinstance(weight, Mapping) else dict.fromkeys(keep, weight)
        if missing := [kind for kind in keep if kind not in weights]:
            raise ValueError(f"no weight is given for {', '.join(missing)}")
        self.method, self.keep = method, tuple(keep)
        self.start = (deepcopy(self.backbone) if start is None else start).requires_grad_(False).eval()
        self.balance = nn.ModuleDict({kind: SharedWeight(weights[kind]) for kind in keep})
        self.distance = Cosine() if distance == "cosine" else L2()
        self.gram = Gram()
        self.block = ""
        if {"class", "gram"} & set(keep):
            self.block = block or block_names(self.start)[-1]
            matching(self.backbone, self.block)
        prefix = prefix_tokens(self.start)
        if "class" in keep and not prefix:
            raise ValueError(f"preserve=class: {type(self.start).__name__} has no class token; take features")
        self.layout = Layout(skip_tokens=prefix)
        self._handle: RemovableHandle | None = None
        self._eyes: dict[str, Watch] = {}
        self._calls: list[_Call] | None = None
        self._hook()
        if "l2sp" in keep and not self._pairs():
            raise ValueError(
                "preserve=l2sp: no weight of the start is trained, so none can move away from it (lora= trains new "
                "ones); take features or gram"
            )

    def train(self, mode: bool = True) -> "Preserved":
        super().train(mode)
        self.start.eval()
        return self

    def forward(self, batch: Batch) -> Terms:
        with self.watching() as calls:
            terms: Terms = dict(self.method(batch))
        found = self.distances(calls) | ({"l2sp": self.moved()} if "l2sp" in self.keep else {})
        weights = list(self.backbone.parameters())
        for kind in self.keep:
            terms[f"preserve.{kind}"] = self.balance[kind](found[kind], total(terms), on=weights)
        return terms

    @contextmanager
    def watching(self) -> Iterator[list["_Call"]]:
        """The inputs and outputs of the backbone while this is open."""
        calls: list[_Call] = []
        if self.keep == ("l2sp",):
            yield calls
            return
        self._hook()
        eye = self._eyes.get("now")
        self._calls = calls
        try:
            if eye is None:
                yield calls
            else:
                with eye.open() as taps:
                    yield calls
                for call, tokens in zip(calls, taps[self.block], strict=True):
                    call.tokens = tokens
        finally:
            self._calls = None

    def distances(self, calls: Sequence["_Call"]) -> dict[str, Scalar]:
        """The terms that see samples, before their weights.  Each is a mean over samples."""
        found: dict[str, list[Scalar]] = {kind: [] for kind in self.keep if kind != "l2sp"}
        for call in calls:
            before = self._at_start(call.x)
            for kind, values in found.items():
                values.append(self._distance(kind, call, before))
        return {kind: torch.stack(values).mean() for kind, values in found.items()}

    def moved(self) -> Scalar:
        """L2-SP.  Of weights that fsdp has split, each rank adds its part, and only that part has a gradient here."""
        pairs = self._pairs()
        zero = torch.zeros((), device=pairs[0][0].device)
        split, whole = zero, zero
        for p, q in pairs:
            if hasattr(p, "to_local"):
                split = split + at_least_float32(_local(p) - _local(q)).square().sum()
            else:
                whole = whole + at_least_float32(p - q).square().sum()
        others = sum_over_ranks(split.detach()) - split.detach() if split is not zero else zero
        return (whole + split + others) / 2

    def _hook(self) -> None:
        """Hooks stay on both networks, because a compiled graph ignores hooks that come later.  A copy has none yet."""
        if self._eyes or self._handle is not None:
            return

        def seen(_net: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            if self._calls is not None and not recomputing():
                self._calls.append(_Call(args[0], output))

        self._handle = self.backbone.register_forward_hook(Hook(seen, owner=""))
        if self.block:
            self._eyes = {"now": watch(self.backbone, self.block), "start": watch(self.start, self.block)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_eyes": {}, "_calls": None}

    def _distance(self, kind: str, now: "_Call", before: "_Call") -> Scalar:
        if kind == "features":
            return self.distance(now.features[:, None], before.features[:, None])
        if kind == "class":
            return self.distance(*(self.layout.first_token(each.tokens)[:, None] for each in (now, before)))
        z, u = (self.layout.tokens(each.tokens)[0] for each in (now, before))
        if z.shape[1] < 2:
            raise ValueError(
                f"preserve=gram compares the tokens of an image, and {self.block} has only one: name an earlier block "
                "by preserve.block="
            )
        return self.gram(z, u)

    @torch.no_grad()
    def _at_start(self, x: Tensor) -> "_Call":
        if not self.block:
            return _Call(x, self.start(x))
        with self._eyes["start"].open() as taps:
            features = self.start(x)
        return _Call(x, features, taps[self.block][0])

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        own = dict(self.start.named_parameters())
        return [(p, own[name]) for name, p in self.backbone.named_parameters() if p.requires_grad and name in own]


def _local(x: Any) -> Tensor:
    part: Tensor = x.to_local()
    return part


class _Call:
    """A forward of the backbone: its input, its features and, if asked for, the output of `block`."""

    def __init__(self, x: Tensor, features: Tensor, tokens: Tensor | None = None) -> None:
        self.x, self.features = x, features
        self.tokens: Any = tokens
