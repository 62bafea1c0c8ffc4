"""The interface of a backbone."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

Grid = tuple[int, int]  # rows and columns of a token map


@runtime_checkable
class Backbone(Protocol):
    """A network from images to pooled features of width `dim`.

    >>> from reglet.backbones import ConvNet
    >>> isinstance(ConvNet(), Backbone), ConvNet().dim
    (True, 128)
    """

    dim: int

    def __call__(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]: ...


@runtime_checkable
class Tokens(Protocol):
    """A backbone that also gives its tokens, row by row, and their grid.

    >>> import torch
    >>> from reglet.backbones import vit_mini
    >>> net = vit_mini(size=32)
    >>> isinstance(net, Tokens), net.tokens(torch.zeros(1, 3, 32, 32))[1]
    (True, (8, 8))
    """

    def tokens(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]: ...


def dim_of(backbone: nn.Module) -> int:
    """The width of a backbone's features."""
    dim = getattr(backbone, "dim", None)
    if not isinstance(dim, int):
        raise TypeError(
            f"a backbone has an attribute dim: int, the width of its pooled features; {type(backbone).__name__} has "
            f"{dim!r}. reglet.backbones.Adapter(model, size=...) finds it for any module."
        )
    return dim


def prefix_tokens(backbone: nn.Module) -> int:
    """How many tokens (class token, registers) stand before those of the grid in what its blocks put out.

    >>> from reglet.backbones import ConvNet, vit_mini
    >>> prefix_tokens(vit_mini()), prefix_tokens(ConvNet())
    (1, 0)
    """
    if hasattr(backbone, "cls_layer"):  # our ViT, whose [CLS] may join late
        return 0 if backbone.cls_layer is None else 1
    for net in (backbone, getattr(backbone, "model", None)):
        for name in ("prefix", "num_prefix_tokens"):
            if isinstance(found := getattr(net, name, None), int):
                return found
    names = {
        name.rsplit(".", 1)[-1]: p for name, p in backbone.named_parameters()
    }  # as transformers' networks have them
    registers = names.get("register_tokens")
    return int("cls_token" in names or "class_embedding" in names) + (0 if registers is None else registers.shape[-2])


def map_tokens(y: Float[Tensor, "n d h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
    """A feature map as tokens and their grid."""
    h, w = y.shape[2:]
    return y.flatten(2).transpose(1, 2), (h, w)
