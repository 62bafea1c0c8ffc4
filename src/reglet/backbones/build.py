"""Backbones by name, for the command line."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial

from torch import nn

from reglet.backbones.convnet import ConvNet
from reglet.backbones.load_transformers import load_transformers
from reglet.backbones.resnet import ResNet, resnet8, resnet14, resnet18, resnet50
from reglet.backbones.timm import Timm
from reglet.backbones.vit import ViT, vit_base, vit_mini, vit_small, vit_tiny

VITS: dict[str, Callable[..., ViT]] = {
    "vit_mini": vit_mini,
    "vit_tiny": vit_tiny,
    "vit_small": vit_small,
    "vit_base": vit_base,
}
RESNETS: dict[str, Callable[..., ResNet]] = {
    "resnet8": resnet8,
    "resnet14": resnet14,
    "resnet18": resnet18,
    "resnet50": resnet50,
}
CONVNETS: dict[str, Callable[..., ConvNet]] = {
    "convnet": ConvNet,
    "convnet_deep": partial(ConvNet, widths=(32, 64, 128), depth=2, stride=2),
}
NAMES = (*CONVNETS, *RESNETS, *VITS)


def build(
    name: str,
    *,
    size: int = 224,
    in_channels: int = 3,
    patch: int | None = None,
    cls_layer: int | None = 0,
    drop_path: float = 0.0,
    pretrained: bool = False,
) -> nn.Module:
    """The backbone called `name`, for images of `size`: one of `NAMES`, "timm/NAME" or "hf/NAME".

    Below 64 px ResNets have a stem that keeps the grid.  patch and cls_layer are for our ViTs, drop_path for these and
    timm, pretrained for timm and transformers.  hf/NAME is a name on the Hugging Face Hub, or a folder.
    cls_layer=None with a ViT of timm: its features are the mean of the patch tokens.

    >>> build("vit_tiny", size=32).dim, build("resnet18", size=32).stem
    (192, 'cifar')
    """
    ours, from_timm, from_hub = name in VITS, name.startswith("timm/"), name.startswith("hf/")
    wrong = {
        "patch": patch is not None and not ours,
        "cls_layer": cls_layer != 0 and not (ours or (from_timm and cls_layer is None)),
        "drop_path": drop_path != 0 and not (ours or from_timm),
        "pretrained": pretrained and not (from_timm or from_hub),
    }
    if from_timm or from_hub or name in NAMES:
        if any(wrong.values()):
            raise ValueError(f"{name} has no {', '.join(key for key in wrong if wrong[key])}")
    else:
        close = get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise LookupError(f"no backbone is called {name!r}.{hint} There are {', '.join(NAMES)}, timm/NAME and hf/NAME")
    if from_timm:
        kind = name.removeprefix("timm/")
        mean = cls_layer is None
        return Timm(kind, size=size, in_channels=in_channels, drop_path=drop_path, pretrained=pretrained, mean=mean)
    if from_hub:
        kind = name.removeprefix("hf/")
        return load_transformers(kind, size=size, in_channels=in_channels, pretrained=pretrained)
    if ours:
        return VITS[name](size=size, patch=patch, cls_layer=cls_layer, drop_path=drop_path, in_channels=in_channels)
    if name in RESNETS:
        return RESNETS[name](stem="cifar" if size < 64 else "imagenet", in_channels=in_channels)
    return CONVNETS[name](in_channels=in_channels)
