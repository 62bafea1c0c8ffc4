"""SER, soft equivariance regularization, around any method.

    L = L_base(B) + lambda L_equiv(b2)
    L_equiv = patch NT-Xent of rho_g z(A_1 x) and z(A_2 x),   g = A_2 A_1^-1,   z = projector(norm(tokens of layer l))

b2 are the last round(r n) images of a batch.  Both views of such an image show the same crop, made by `AlignedViews`.
Then each view is transformed by a known element of the group.  Besides that, the views differ only in colours.  rho_g
moves the tokens of one view to their places in the other.  The projector is pointwise and comes before rho_g, as in the
authors' code; for turns and flips the order makes no difference.

Where paper and code differ: the base loss sees b1 and b2 as one batch (code, `base="one"`), or is the sum of two losses
(paper, `base="two"`).  The tokens of the other view come from the network itself (paper, `target="online"`), or from
its momentum teacher (code).  Both views are anchors, each with the other moved to its grid (code), or only the second
(`symmetric=False`).  The released code computes all this without gradient: `grad_mode="released"`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.blocks.patch_ntxent import patch_ntxent
from reglet.dist import world_size
from reglet.groups import D4, Element, Symmetry, align, relative, transform
from reglet.groups.d4 import send
from reglet.method import Batch, Method, MethodWrapper, innermost
from reglet.methods.equivariant_batch import BlockMaps, Grid, observed, partly_transformed
from reglet.methods.equivariant_views import part_of, require_aligned, require_one_of
from reglet.methods.momentum import Teacher, half_cosine
from reglet.methods.token_maps import Layer, as_tokens, layer_names, widths
from reglet.schedules import Weight
from reglet.shares import SharedWeight
from reglet.types import Scalar, Terms, total


class TokenHead(nn.Module):
    """LayerNorm, and a projector of two layers without biases; 458,752 weights for 384 -> 512 -> 512."""

    def __init__(self, dim: int, *, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.projector = nn.Sequential(
            nn.Linear(dim, width, bias=False), nn.GELU(), nn.Linear(width, width, bias=False)
        )

    def forward(self, y: Float[Tensor, "n t d"]) -> Float[Tensor, "n t k"]:
        z: Tensor = self.projector(self.norm(y))
        return z


class Equivariant(MethodWrapper):
    """The terms of `method`, and `weight` times the equivariance loss of one layer, or its mean over several layers.

        vit = vit_small(cls_layer=3)
        method = Equivariant(MoCoV3(vit), layer=3)
        policy = AlignedViews(reglet.views.policy("ser", size=224), fraction=0.01)

    layer: 3 is the output of the third block, "blocks.*" of all blocks, "layer2" of a ResNet's second stage.  [CLS] may
        join before or after it, and is left out.
    fraction, weight, temperature: r, lambda and tau.  Scripts of the authors have tau 0.4 or 0.5, lambda 0.3 to 1.
        lambda may be a schedule, or "share:0.3" of the gradient.
    group: what is drawn; by default the whole group.
    target, intra: the authors' code intends "momentum" and False.
    pairs: with more than two views, the losses of views 0 and 1, 2 and 3, ... are summed (code) or averaged.
    patch: in pixels.  For a network without patches, its stride: sizes of transformed images are multiples of it.
    example: images, to find the widths of layers in networks other than our ViT.
    gather: take negatives from all ranks.

    >>> from reglet import BarlowTwinsLoss, backbones, methods, views
    >>> net = backbones.vit_mini(size=16, cls_layer=2)
    >>> base = methods.JointEmbedding(net, BarlowTwinsLoss(), projector=backbones.projector(net.dim, widths=(16, 8)))
    >>> policy = methods.AlignedViews(views.policy("ser", size=16), fraction=0.5)
    >>> draws = policy.draw(4)
    >>> batch = Batch(policy.apply(torch.rand(4, 3, 16, 16), draws), n_global=2, draws=draws)
    >>> sorted(Equivariant(base, layer=2, fraction=0.5)(batch))
    ['equivariance', 'invariance', 'redundancy']
    """

    def __init__(
        self,
        method: Method,
        *,
        layer: Layer = 3,
        fraction: float = 0.01,
        weight: Weight = 0.5,
        temperature: float = 0.3,
        group: Symmetry | None = None,
        target: Literal["online", "momentum"] = "online",
        intra: bool = True,
        symmetric: bool = True,
        base: Literal["one", "two"] = "one",
        pairs: Literal["sum", "mean"] = "sum",
        grad_mode: Literal["full", "released"] = "full",
        width: int = 512,
        patch: int | None = None,
        example: Tensor | None = None,
        gather: bool = True,
        name: str = "equivariance",
    ) -> None:
        super().__init__()
        if not 0 <= fraction < 1 or temperature <= 0:
            raise ValueError(f"expected fraction in [0, 1) and temperature > 0, got {fraction} and {temperature}")
        require_one_of("target", target, ("online", "momentum"))
        require_one_of("base", base, ("one", "two"))
        require_one_of("pairs", pairs, ("sum", "mean"))
        require_one_of("grad_mode", grad_mode, ("full", "released"))
        self.method, self.fraction, self.temperature = method, fraction, temperature
        self.balance = SharedWeight(weight)
        self.group = Symmetry() if group is None else group
        self.target, self.intra, self.symmetric = target, intra, symmetric
        self.base, self.pairs, self.grad_mode, self.gather, self.name = base, pairs, grad_mode, gather, name
        self.patch = _patch(self.backbone) if patch is None else patch
        self.blocks = layer_names(self.backbone, layer)
        self.heads = nn.ModuleDict(
            {
                _key(block): TokenHead(dim, width=width)
                for block, dim in zip(self.blocks, widths(self.backbone, self.blocks, example), strict=True)
            }
        )
        self.heads.requires_grad_(grad_mode == "full")
        if target == "momentum" and self._teacher() is None:
            raise ValueError(f"target='momentum' needs a method with a teacher, got {type(innermost(method)).__name__}")
        norms = {key: Teacher(self._head(key).norm) for key in self.heads} if target == "momentum" else {}
        self.teacher_norms = nn.ModuleDict(norms)

    def forward(self, batch: Batch) -> Terms:
        last = part_of(len(batch.views[0]), self.fraction)
        if self.fraction == 0:
            terms: Terms = self.method(batch)
            return terms
        self._check(batch, last)
        elements = self._draw(batch, last)
        to_partner = [relative(element, elements[v ^ 1]) for v, element in enumerate(elements)]
        send([*(element.d4 for element in elements), *to_partner], batch.views[0].device)
        run = self._as_one if self.base == "one" else self._as_two
        terms, student, teacher = run(batch, elements, last)
        if self.name in terms:
            raise ValueError(f"there is a term {self.name!r} already: give this one another name=")
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.grad_mode == "full"):
            value = self._equivariance(elements, to_partner, student, teacher)
        return terms | {self.name: self.balance(value, total(terms), on=self.backbone.parameters())}

    def after_step(self, step: int, steps: int) -> None:
        super().after_step(step, steps)
        for key, norm in self.teacher_norms.items():
            assert isinstance(norm, Teacher)
            start: Any = innermost(self.method).momentum
            norm.follow(self._head(key).norm, momentum=half_cosine(step / steps, start=start, end=1.0))

    def _as_one(
        self, batch: Batch, elements: Sequence[Element], last: int
    ) -> tuple[Terms, dict[int, BlockMaps], dict[int, BlockMaps]]:
        """The base loss of the whole batch."""
        sizes, n = _sizes(batch.views), len(batch.views[0])

        def open_(net: nn.Module, sizes: Sequence[Grid]) -> Any:
            return partly_transformed(net, sizes, elements, self.blocks, n=n, patch=self.patch)

        with open_(self.backbone, sizes) as student, self._open_teacher(open_, sizes[: batch.n_global]) as teacher:
            terms: Terms = self.method(batch)
        return terms, student, teacher

    def _as_two(
        self, batch: Batch, elements: Sequence[Element], last: int
    ) -> tuple[Terms, dict[int, BlockMaps], dict[int, BlockMaps]]:
        """The base losses of b1 and of b2, under separate names."""
        first: Terms = self.method(_cut(batch, slice(0, len(batch.views[0]) - last)))
        second = _cut(batch, slice(len(batch.views[0]) - last, None))
        views = [transform(x, e, patch=self.patch) for x, e in zip(second.views, elements, strict=True)]
        sizes = _sizes(views)

        def open_(net: nn.Module, sizes: Sequence[Grid]) -> Any:
            return observed(net, sizes, self.blocks, n=last)

        with open_(self.backbone, sizes) as student, self._open_teacher(open_, sizes[: batch.n_global]) as teacher:
            terms: Terms = self.method(replace(second, views=views))
        return first | {f"{key}_b2": value for key, value in terms.items()}, student, teacher

    @contextmanager
    def _open_teacher(self, open_: Any, sizes: Sequence[Grid]) -> Iterator[dict[int, BlockMaps]]:
        net = self._teacher()
        if net is None:
            yield {}
            return
        with open_(net, sizes) as maps:
            yield maps

    def _equivariance(
        self,
        elements: Sequence[Element],
        to_partner: Sequence[D4],
        student: dict[int, BlockMaps],
        teacher: dict[int, BlockMaps],
    ) -> Scalar:
        """to_partner: A_2 A_1^-1 for each view; 1 is the view itself, and 2 the other view of its pair."""
        losses = []
        for block in self.blocks:
            of_pairs = [
                self._pair(block, i, elements, to_partner, student, teacher if self.target == "momentum" else student)
                for i in range(0, len(elements), 2)
            ]
            stacked = torch.stack(of_pairs)
            losses.append(stacked.sum() if self.pairs == "sum" else stacked.mean())
        return torch.stack(losses).mean()

    def _pair(
        self,
        block: str,
        i: int,
        elements: Sequence[Element],
        to_partner: Sequence[D4],
        student: dict[int, BlockMaps],
        other: dict[int, BlockMaps],
    ) -> Scalar:
        online = [self._project(block, student[v][block], elements[v], momentum=False) for v in (i, i + 1)]
        keys = online
        if self.target == "momentum":
            with torch.no_grad():
                keys = [self._project(block, other[v][block], elements[v], momentum=True) for v in (i, i + 1)]
        sides = []
        for a, b in ((0, 1), (1, 0)) if self.symmetric else ((0, 1),):
            (key, grid), (anchor, to) = keys[a], online[b]
            moved = align(key, to_partner[i + a], grid=grid, to=to)
            sides.append(
                patch_ntxent(
                    anchor,
                    moved,
                    temperature=self.temperature,
                    intra=self.intra,
                    symmetric=False,
                    gather=self.gather,
                )
            )
        return torch.stack(sides).mean()

    def _project(
        self, block: str, y: Tensor, element: Element, *, momentum: bool
    ) -> tuple[Float[Tensor, "n t k"], Grid]:
        h, w = element.shape
        tokens, grid = as_tokens(y, image=(h * self.patch, w * self.patch), patch=self.patch)
        head = self._head(_key(block))
        if not momentum:
            return head(tokens), grid
        return head.projector(self.teacher_norms[_key(block)](tokens)), grid

    def _head(self, key: str) -> TokenHead:
        head = self.heads[key]
        assert isinstance(head, TokenHead)
        return head

    def _teacher(self) -> nn.Module | None:
        """The backbone of the method's teacher."""
        teacher = getattr(innermost(self.method), "teacher", None)
        return teacher.net.get_submodule("0") if isinstance(teacher, Teacher) else None

    def _draw(self, batch: Batch, last: int) -> list[Element]:
        sizes = _sizes(batch.views)
        groups = [self.group.fitted(size, patch=self.patch) for size in sizes[::2]]
        return [element for group in groups for element in group.draw_pair(last)]

    def _check(self, batch: Batch, last: int) -> None:
        n = len(batch.views[0])
        if last * world_size() < 2:
            raise ValueError(
                f"fraction={self.fraction} of {n} images is {last} on each of {world_size()} ranks, and at least two "
                "in all are needed, because negatives come from other images"
            )
        if batch.draws is None:
            raise ValueError("Equivariant needs to know how views were made, and this batch has no draws")
        require_aligned(batch.draws, last=last)
        if self.target == "momentum" and batch.n_global < len(batch.views):
            raise ValueError(
                f"a momentum teacher sees global views only, {batch.n_global} of these {len(batch.views)}: "
                "use target='online'"
            )


def _sizes(views: Sequence[Tensor]) -> list[Grid]:
    return [(x.shape[2], x.shape[3]) for x in views]


def _cut(batch: Batch, part: slice) -> Batch:
    return replace(
        batch,
        views=[x[part] for x in batch.views],
        labels=None if batch.labels is None else batch.labels[part],
        domain=None if batch.domain is None else batch.domain[part],
        draws=None if batch.draws is None else [draw.take(part) for draw in batch.draws],
    )


def _patch(backbone: nn.Module) -> int:
    patch = getattr(backbone, "patch", None)
    if not isinstance(patch, int):
        raise ValueError(
            f"{type(backbone).__name__} has no patch: give its stride as patch=, of which image sizes are multiples"
        )
    return patch


def _key(block: str) -> str:
    return block.replace(".", "/")
