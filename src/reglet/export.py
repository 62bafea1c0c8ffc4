"""An encoder that loads without reglet: weights as safetensors, a card as JSON, and the code that loads them.

The code on the card is run, on the file that was written, before anyone sees it.
"""

import json
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from reglet.backbones.adapter import Adapter
from reglet.backbones.build import build
from reglet.backbones.convnet import ConvNet
from reglet.backbones.timm import Timm
from reglet.backbones.vit import ViT
from reglet.views import Policy, policy

Json = dict[str, Any]
ENCODER, PROGRAM, CARD = "encoder.safetensors", "encoder.pt2", "card.json"
TOLERANCE = 1e-4  # relative, of float32 features: other libraries fuse other operations
PACKAGES = ("reglet", "torch", "numpy", "lightning-fabric", "safetensors", "timm", "torchvision", "pillow")


class ExportError(RuntimeError):
    """What was written is not what was trained."""


def export(backbone: nn.Module, folder: Path, *, name: str, size: int, in_channels: int, card: Json) -> Json:
    """Write encoder.safetensors and card.json to `folder`, and load them back.  Gives the whole card.

    name: of the architecture, as `reglet.backbones.build` takes it; `card["model"]` has its options.
    """
    backbone = backbone.cpu().eval()
    folder.mkdir(parents=True, exist_ok=True)
    own = bare(backbone)
    save_file({key: value.detach().contiguous().clone() for key, value in own.state_dict().items()}, folder / ENCODER)
    (folder / ENCODER).chmod(0o644)
    x = torch.randn(4, in_channels, size, size, generator=torch.Generator().manual_seed(0))
    code, proof = _prove(backbone, folder, x, fresh=lambda: _built(name, size, in_channels, card.get("model", {})))
    view = plain(size).views[0]
    assert view.normalize is not None
    whole = {
        "architecture": {"name": name, "size": size, "in_channels": in_channels, "features": int(backbone(x).shape[1])},
        "load": code,
        "verified": proof,
        "preprocessing": {
            "channels": "RGB" if in_channels == 3 else "grey",
            "resize": [size, size],
            "interpolation": "bicubic, antialiased",
            "range": [0, 1],
            "mean": list(view.normalize.mean),
            "std": list(view.normalize.std),
        },
        **card,
        "code": {"name": "reglet", "licence": "MIT"},
        "versions": versions(),
    }
    (folder / CARD).write_text(json.dumps(whole, indent=1) + "\n")
    return whole


def load_encoder(folder: Path) -> tuple[nn.Module, Callable[[Tensor], Tensor], Json]:
    """The encoder in `folder`, what prepares uint8 images for it, and its card."""
    try:
        card: Json = json.loads((folder / CARD).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ExportError(f"{folder} holds no exported encoder: {error}") from error
    about = card["architecture"]
    backbone = _built(about["name"], about["size"], about["in_channels"], card.get("model", {}))
    load_weights(backbone, folder)
    return backbone.eval(), preprocessing(about["size"]), card


def load_weights(backbone: nn.Module, path: Path) -> None:
    """Weights of an encoder.safetensors, or of the run in a directory, into a backbone of the same architecture."""
    file = path / ENCODER if path.is_dir() else path
    if not file.is_file():
        raise ExportError(f"there is no encoder at {file}")
    weights = load_file(file)
    if any(key.startswith("method.") for key in weights):  # a checkpoint: what it calls the backbone's own
        start = "ema.module." if any(key.startswith("ema.") for key in weights) else "method."
        while any(key.startswith(start + "method.") for key in weights):  # a wrapper, such as Regularized
            start += "method."
        start += "backbone.model." if isinstance(backbone, Timm | Adapter) else "backbone."
        weights = {key.removeprefix(start): value for key, value in weights.items() if key.startswith(start)}
    try:
        bare(backbone).load_state_dict(weights)
    except RuntimeError as error:
        lines = " ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise ExportError(f"the weights in {file} are of another architecture: {lines[:300]}") from error


def bare(backbone: nn.Module) -> nn.Module:
    """The network as its author wrote it: what an adapter wraps, so that the keys are timm's or the user's own."""
    return backbone.model if isinstance(backbone, Timm | Adapter) else backbone


def plain(size: int) -> Policy:
    """The whole image, resized and normalised."""
    return policy("plain", size=size)


def preprocessing(size: int) -> Callable[[Tensor], Float[Tensor, "n c h w"]]:
    """uint8 images -> what the encoder takes."""
    view = plain(size)
    return lambda images: view.apply(images, view.draw(len(images)))[0]


def snippet(backbone: nn.Module) -> str | None:
    """Code without reglet that makes `encoder`, if there is any."""
    if isinstance(backbone, Timm):
        extra = "".join(f", {key}={value}" for key, value in _timm_arguments(backbone).items())
        return _code("import timm", f'timm.create_model("{backbone.name}", num_classes=0{extra})')
    if isinstance(backbone, ViT) and backbone.cls_layer in (0, None):
        return _code("from timm.models import VisionTransformer", f"VisionTransformer({_vit_arguments(backbone)})")
    if isinstance(backbone, ConvNet):
        return _convnet(backbone)
    return None


def versions() -> dict[str, str]:
    """Of Python and of every package that a run may depend on, where it is installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _prove(backbone: nn.Module, folder: Path, x: Tensor, *, fresh: Callable[[], nn.Module]) -> tuple[str, Json]:
    """The code that loads the encoder, run, and how far its features are from the backbone's."""
    code = snippet(backbone)
    try:
        if code is not None:
            return code, _compare(backbone, _run(code, folder), x, by="the code above")
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ExportError):
            raise
        note = f"its library could not be imported here ({type(error).__name__}), so it was loaded in reglet"
        other = fresh()
        load_weights(other, folder)
        return code or "", _compare(backbone, other, x, by=note)
    code = f'import torch\n\nencoder = torch.export.load("{PROGRAM}").module()'
    batch = torch.export.Dim("n", min=1)
    program = torch.export.export(backbone, (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / PROGRAM)
    return code, _compare(backbone, _run(code, folder), x, by="the code above")


def _run(code: str, folder: Path) -> nn.Module:
    names: Json = {}
    exec(code.replace(ENCODER, str(folder / ENCODER)).replace(PROGRAM, str(folder / PROGRAM)), names)
    encoder: nn.Module = names["encoder"]
    return encoder


@torch.no_grad()
def _compare(ours: nn.Module, theirs: nn.Module, x: Tensor, *, by: str) -> Json:
    if type(theirs).__name__ != "GraphModule":  # an exported program is in eval mode and cannot leave it
        theirs.eval()
    a, b = ours(x), theirs(x)
    apart = float((a - b).abs().max() / a.abs().max().clamp_min(1e-12)) if a.shape == b.shape else float("inf")
    if not apart <= TOLERANCE:
        raise ExportError(f"the exported encoder gives other features: {apart:.1e} apart, relative to the largest")
    return {"by": by, "largest relative difference": apart}


def _built(name: str, size: int, in_channels: int, options: Json) -> nn.Module:
    return build(name, size=size, in_channels=in_channels, **{**options, **({"pretrained": False} if options else {})})


def _code(imports: str, made: str) -> str:
    load = f'encoder.load_state_dict(load_file("{ENCODER}"))\nencoder.eval()'
    return f"{imports}\nfrom safetensors.torch import load_file\n\nencoder = {made}\n{load}"


def _vit_arguments(vit: ViT) -> str:
    height, width = vit.grid[0] * vit.patch, vit.grid[1] * vit.patch
    block: Any = vit.blocks[0]
    pooled = 'global_pool="token"' if vit.cls_layer == 0 else 'class_token=False, global_pool="avg", fc_norm=False'
    return (
        f"img_size=({height}, {width}), patch_size={vit.patch}, in_chans={vit.patch_embed.proj.in_channels}, "
        f"embed_dim={vit.dim}, depth={len(vit.blocks)}, num_heads={block.attn.heads}, "
        f"mlp_ratio={block.mlp.fc1.out_features / vit.dim}, num_classes=0, {pooled}"
    )


def _timm_arguments(backbone: Timm) -> Json:
    """What the model was made with besides its name, as far as its first layers tell."""
    model: Any = backbone.model
    first = next(m for m in model.modules() if isinstance(m, nn.Conv2d))
    found: Json = {"in_chans": first.in_channels}
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    if size is not None:
        found["img_size"] = tuple(size)
    return found


CONVNET = """\
from safetensors.torch import load_file
from torch import nn


def stage(c_in, c_out, depth, stride):
    layers = []
    for i in range(depth):
        conv = nn.Conv2d(c_out if i else c_in, c_out, 3, stride=1 if i else stride, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(c_out), nn.ReLU()]
    return nn.Sequential(*layers)


encoder = nn.Sequential()
encoder.stages = nn.Sequential({stages})
encoder.pool, encoder.flat = nn.AdaptiveAvgPool2d(1), nn.Flatten()
encoder.load_state_dict(load_file("{file}"))
encoder.eval()"""


def _convnet(net: ConvNet) -> str:
    stages = []
    for stage in net.stages.children():
        convs = [layer for layer in stage.children() if isinstance(layer, nn.Conv2d)]
        first = convs[0]
        stages.append(f"stage({first.in_channels}, {first.out_channels}, {len(convs)}, {first.stride[0]})")
    return CONVNET.format(stages=", ".join(stages), file=ENCODER)
