"""Prediction by names: `method=jepa loss=sigreg method.weight=0.1 method.targets=4`."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from reglet import backbones, schedules
from reglet.backbones.protocol import dim_of
from reglet.backbones.timm import Timm
from reglet.backbones.vit import ViT
from reglet.engine.arguments import call
from reglet.engine.attachments import ONE_PLACE
from reglet.engine.config import JEPA, Config, no_such
from reglet.engine.feed import ViewPolicy
from reglet.method import Method, innermost
from reglet.methods import MaskedTokens, Predictive
from reglet.schedules import Weight
from reglet.types import WrongKindError
from reglet.views import Policy
from reglet.views.masks import BlockMasks, MaskedViews

SLICES = 256  # by default; all places of the grid share them, and each place is a batch of its own


def default_weight(regularizer: str) -> float:
    """For SIGReg, which grows with the batch, LeWM's weight; for regularizers that are means, 1."""
    return 0.1 if regularizer == "sigreg" else 1.0


def jepa(
    backbone: nn.Module,
    regularizer: nn.Module,
    *,
    projector: nn.Module | None = None,
    embedding: int | None = None,
    weight: float | str = 1.0,
    detach: bool = False,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    targets: int = 4,
    target_scale: tuple[float, float] = (0.15, 0.2),
    target_aspect: tuple[float, float] = (0.75, 1.5),
    context_scale: tuple[float, float] = (0.85, 1.0),
    least: int = 4,
) -> Predictive:
    """`Predictive` with `MaskedTokens`.  By default the predictor is half as wide and half as deep as the ViT."""
    if not isinstance(backbone, ViT | Timm):
        raise WrongKindError(
            f"method={JEPA} shows the network only some patches: give a ViT of reglet or of timm, such as "
            f"model=vit_mini or model=timm/vit_small_patch16_224; got {type(backbone).__name__}"
        )
    if not backbone.mean if isinstance(backbone, Timm) else backbone.cls_token is not None:
        raise WrongKindError(
            f"method={JEPA} trains patch tokens, and their mean are the features: say model.cls_layer=none"
        )
    vit: Any = backbone.as_vit() if isinstance(backbone, Timm) else backbone
    masks = BlockMasks(
        vit.patch_embed.grid_size if isinstance(backbone, Timm) else vit.grid,
        targets=targets,
        target_scale=target_scale,
        target_aspect=target_aspect,
        context_scale=context_scale,
        least=least,
    )
    width = backbone.dim // 2 if width is None else width
    predictor = MaskedTokens(
        backbone.dim,
        masks=masks,
        width=width,
        depth=max(1, len(vit.blocks) // 2) if depth is None else depth,
        heads=max(1, width // 32) if heads is None else heads,
        projector=projector,
        embedding=embedding,
    )
    given: Weight = schedules.parse(weight) if isinstance(weight, str) else weight
    return Predictive(backbone, regularizer, predictor=predictor, weight=given, detach=detach)


def build_jepa(config: Config, backbone: nn.Module, widths: list[int] | None) -> Method:
    """The method, with the regularizer that loss= names.  widths: of the projector; []: there is none."""
    name = config.loss or "visreg"
    if name not in ONE_PLACE:
        raise ValueError(no_such("regularizer", name, set(ONE_PLACE)))
    if config.equivariant:
        raise ValueError(f"equivariant={config.equivariant} compares two views, and method={JEPA} has only one")
    regularizer = call(ONE_PLACE[name], config, "loss", **of_all_ranks(ONE_PLACE[name], slices=SLICES))
    given: dict[str, Any] = {"weight": default_weight(name)}
    if widths is not None:
        dim = dim_of(backbone)
        head = backbones.projector(dim, widths=widths) if widths else nn.Identity()
        given |= {"projector": head, "embedding": [dim, *widths][-1]}
    made: Method = call(jepa, config, "method", backbone, regularizer, **given)
    return made


def of_all_ranks(kind: Callable[..., nn.Module], **given: Any) -> dict[str, Any]:
    """Arguments with which W processes train like one: the regularizer of the global batch, with the same slices
    everywhere.  `given` and these are kept only if `kind` has such arguments."""
    known = inspect.signature(kind).parameters
    wanted = {"gather": True, "shared_slices": True, **given}
    return {key: value for key, value in wanted.items() if key in known}


def masked_views(method: Method, policy: ViewPolicy) -> ViewPolicy:
    """One view of each image with its masks if the method predicts tokens; otherwise `policy`."""
    inner = innermost(method)
    if not isinstance(inner, Predictive) or not isinstance(inner.predictor, MaskedTokens):
        return policy
    assert isinstance(policy, Policy)
    return MaskedViews(replace(policy, views=policy.views[:1], n_global=1), inner.predictor.masks)
