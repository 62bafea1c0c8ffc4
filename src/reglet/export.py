"""An encoder that loads without reglet: weights as safetensors, a card as JSON, and the code that loads them.

The code on the card is run on the written file before the export counts as done.
"""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from reglet.atomic import replacing
from reglet.backbones.adapter import Adapter
from reglet.backbones.build import build
from reglet.backbones.convnet import ConvNet
from reglet.backbones.load_transformers import from_architecture, load_transformers
from reglet.backbones.resnet import ResNet
from reglet.backbones.timm import Timm
from reglet.backbones.transformers import Transformers, architecture
from reglet.backbones.vit import ViT
from reglet.seeded import seeded
from reglet.views import Policy, policy

Json = dict[str, Any]
ENCODER, HEAD, PROGRAM, CARD = "encoder.safetensors", "head.safetensors", "encoder.pt2", "card.json"
TOLERANCE = 1e-4  # relative, of float32 features: other libraries fuse other operations
RESNETS = {512: "resnet18", 2048: "resnet50"}  # width of the features -> timm's name
PACKAGES = ("reglet", "torch", "numpy", "lightning-fabric", "safetensors", "timm", "torchvision", "pillow")


class ExportError(RuntimeError):
    """The written encoder differs from the trained one."""


def export(
    backbone: nn.Module,
    folder: Path,
    *,
    name: str,
    size: int,
    in_channels: int,
    card: Json,
    head: nn.Linear | None = None,
    classes: Sequence[str] = (),
) -> Json:
    """Write encoder.safetensors and card.json to `folder`, and load them back.  Gives the whole card.

    name: of the architecture, as `reglet.backbones.build` takes it; `card["model"]` has its options.
    head: of a classifier, from features to the logits of `classes`; it goes to head.safetensors.
    """
    backbone = backbone.cpu().eval()
    folder.mkdir(parents=True, exist_ok=True)
    own = bare(backbone)
    write_weights(own, folder / ENCODER)
    x = torch.randn(4, in_channels, size, size, generator=torch.Generator().manual_seed(0))
    _prove_preparation(size, in_channels)
    about = {"name": name, "size": size, "in_channels": in_channels, "features": int(backbone(x).shape[1])}
    if isinstance(backbone, Transformers):  # the folder or the network that the name stands for may be gone later
        about["config"] = architecture(backbone.config)
    code, proof = _prove(backbone, folder, x, fresh=lambda: _built(about, card.get("model", {})))
    whole = {
        "architecture": about,
        "load": code,
        "verified": proof,
        "preprocess": prepare_code(size, in_channels),
        **({} if head is None else {"classifier": _export_head(head, folder, classes)}),
        **card,
        "code": {"name": "reglet", "licence": "MIT"},
        "versions": versions(),
    }
    with replacing(folder / CARD) as fresh:
        fresh.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return whole


def load_encoder(folder: Path) -> tuple[nn.Module, Callable[[Tensor], Tensor], Json]:
    """The encoder in `folder`, what prepares uint8 images for it, and its card."""
    try:
        card: Json = json.loads((folder / CARD).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ExportError(f"{folder} holds no exported encoder: {error}") from error
    about = card["architecture"]
    backbone = _built(about, card.get("model", {}))
    load_weights(backbone, folder)
    return backbone.eval(), preprocessing(about["size"]), card


def fresh_encoder(card: Json, *, seed: int) -> nn.Module:
    """The encoder of this card with the random weights that a run of this seed starts from."""
    with seeded(seed):
        return _built(card["architecture"], card.get("model", {})).eval()


def load_head(folder: Path, card: Json) -> tuple[nn.Linear, list[str]] | None:
    """The linear classifier beside the encoder in `folder`, and its classes; None where only features were learned."""
    if "classifier" not in card:
        return None
    return linear(load_file(folder / HEAD)).eval(), list(card["classifier"]["classes"])


def linear(weights: dict[str, Tensor]) -> nn.Linear:
    """The layer with these weights."""
    classes, features = weights["weight"].shape
    head = nn.Linear(features, classes)
    head.load_state_dict(weights)
    return head


def of_checkpoint(weights: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """The weights of a part of a run's method, from its checkpoint; of the moving average if there is one."""
    start = "ema.module." if any(key.startswith("ema.") for key in weights) else "method."
    while any(key.startswith(start + "method.") for key in weights):  # a wrapper, such as Regularized
        start += "method."
    start += f"{part}."
    return {key.removeprefix(start): value for key, value in weights.items() if key.startswith(start)}


def load_weights(backbone: nn.Module, path: Path) -> None:
    """Weights of an encoder.safetensors, or of the run in a directory, into a backbone of the same architecture."""
    file = path / ENCODER if path.is_dir() else path
    if not file.is_file():
        raise ExportError(f"there is no encoder at {file}")
    weights = load_file(file)
    if any(key.startswith("method.") for key in weights):  # a checkpoint: what it calls the backbone's own
        weights = of_checkpoint(weights, "backbone" if bare(backbone) is backbone else "backbone.model")
    if why := misfit(bare(backbone).state_dict(), weights):
        raise ExportError(f"the weights in {file} are of another architecture: {why}")
    bare(backbone).load_state_dict(weights)


def start_from(backbone: nn.Module, place: str) -> None:
    """The weights at `place` into `backbone`: an encoder.safetensors, a run or exported encoder, hf/NAME, or a folder
    that transformers saved."""
    path = Path(place)
    theirs = path.is_dir() and not (path / ENCODER).exists() and _of_transformers(path)
    if not place.startswith("hf/") and not theirs:
        load_weights(backbone, path)
        return
    name = place.removeprefix("hf/")
    weights = bare(load_transformers(name)).state_dict()
    if why := misfit(bare(backbone).state_dict(), weights):
        raise ExportError(f"the weights of {place} are of another architecture: {why}. model=hf/{name} has theirs")
    bare(backbone).load_state_dict(weights)


def _of_transformers(folder: Path) -> bool:
    try:
        return "model_type" in json.loads((folder / "config.json").read_text())
    except (OSError, json.JSONDecodeError):
        return False


def misfit(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """Why `given` are not the weights of a network that has `own`; nothing where they are.

    >>> misfit({"a": torch.zeros(2), "b": torch.zeros(1)}, {"a": torch.zeros(3), "head": torch.zeros(1)})
    'missing: b; extra: head; of another shape: a is (2,) and came as (3,)'
    """
    both = [name for name in own if name in given and own[name].shape != given[name].shape]
    shapes = [f"{name} is {tuple(own[name].shape)} and came as {tuple(given[name].shape)}" for name in both]
    groups = {
        "missing": [name for name in own if name not in given],
        "extra": [name for name in given if name not in own],
        "of another shape": shapes,
    }
    said = "; ".join(f"{what}: {_some(names)}" for what, names in groups.items() if names)
    if both and all("pos" in name for name in both) and not groups["missing"] and not groups["extra"]:
        said += ". These are positions: give size= as the weights were trained with"
    return said


def _some(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def bare(backbone: nn.Module) -> nn.Module:
    """The network inside an adapter, so that the keys are timm's or the user's own."""
    return backbone.model if isinstance(backbone, Timm | Transformers | Adapter) else backbone


def plain(size: int) -> Policy:
    """The whole image, resized and normalised."""
    return policy("plain", size=size)


def preprocessing(size: int) -> Callable[[Tensor], Float[Tensor, "n c h w"]]:
    """uint8 images -> what the encoder takes."""
    view = plain(size)
    return lambda images: view.apply(images, view.draw(len(images)))[0]


def snippet(backbone: nn.Module, *, file: str = ENCODER) -> str | None:
    """Code without reglet that makes `encoder` with the weights in `file`, if there is any."""
    if isinstance(backbone, Timm):
        extra = "".join(f", {key}={value!r}" for key, value in _timm_arguments(backbone).items())
        return _code("import timm", f"timm.create_model({backbone.name!r}, num_classes=0{extra})", file)
    if isinstance(backbone, Transformers):
        return backbone.code(file=file)
    if isinstance(backbone, ViT) and backbone.cls_layer in (0, None):
        made = "VisionTransformer({})".format(", ".join(f"{k}={v!r}" for k, v in _vit_arguments(backbone).items()))
        return _code("from timm.models import VisionTransformer", made, file)
    if isinstance(backbone, ConvNet):
        return _convnet(backbone, file)
    return None


def versions() -> dict[str, str]:
    """The versions of Python and of every installed package that a run may depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _prove(backbone: nn.Module, folder: Path, x: Tensor, *, fresh: Callable[[], nn.Module]) -> tuple[str, Json]:
    """The code that loads the encoder, and how far its features are from the backbone's.  The code is run here.

    The code that is run has the full path of the file; the code on the card only its name.
    """
    code = snippet(backbone)
    try:
        if code is not None:
            here = snippet(backbone, file=str(folder / ENCODER)) or ""
            return code, _compare(backbone, _run(here, "encoder"), x, by="the code above")
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ExportError):
            raise
        note = f"its library could not be imported here ({type(error).__name__}), so it was loaded in reglet"
        other = fresh()
        load_weights(other, folder)
        return code or "", _compare(backbone, other, x, by=note)
    batch = torch.export.Dim("n", min=1)
    program = torch.export.export(backbone, (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / PROGRAM)
    again = _run(_program(str(folder / PROGRAM)), "encoder")
    return _program(PROGRAM), _compare(backbone, again, x, by="the code above")


def write_weights(module: nn.Module, file: Path) -> None:
    """Writes the whole file or nothing, even if the process is killed."""
    with replacing(file) as fresh:
        save_file({key: value.detach().contiguous().clone() for key, value in module.state_dict().items()}, fresh)
        fresh.chmod(0o644)


def read_weights(module: nn.Module, file: Path) -> None:
    """What `write_weights` wrote.  Weights that do not fit are listed, and the module stays as it was."""
    if not file.is_file():
        raise ExportError(f"there are no weights at {file}")
    weights = load_file(file)
    if why := misfit(module.state_dict(), weights):
        raise ExportError(f"the weights in {file} do not fit: {why}")
    module.load_state_dict(weights)


def _export_head(head: nn.Linear, folder: Path, classes: Sequence[str]) -> Json:
    """Written, loaded again by the code that the card has for it, and compared."""
    head = head.cpu().eval()
    write_weights(head, folder / HEAD)
    z = torch.randn(4, head.in_features, generator=torch.Generator().manual_seed(0))
    proof = _compare(head, _run(head_code(head, file=str(folder / HEAD)), "head"), z, by="the code above")
    return {"classes": list(classes), "load": head_code(head), "verified": proof}


def head_code(head: nn.Linear, *, file: str = HEAD) -> str:
    """Code without reglet that makes `head`, from features to logits."""
    return HEAD_CODE.format(features=head.in_features, classes=head.out_features, file=file)


def _program(file: str) -> str:
    return f"import torch\n\nencoder = torch.export.load({file!r}).module()"


def _run(code: str, name: str) -> Any:
    """What `code` calls `name`."""
    names: Json = {}
    exec(code, names)
    return names[name]


def prepare_code(size: int, in_channels: int) -> str:
    """Code without reglet: `read`, from a file to an image as `reglet embed` reads it, and `preprocess`."""
    view = plain(size).views[0]
    assert view.normalize is not None
    mean, std = (torch.tensor(values) for values in (view.normalize.mean, view.normalize.std))
    if in_channels == 1:
        mean, std = mean.mean(0, keepdim=True), std.mean(0, keepdim=True)
    numbers = {"size": size, "mean": [round(m, 6) for m in mean.tolist()], "std": [round(s, 6) for s in std.tolist()]}
    code = PREPROCESS.format(**numbers)
    return code + READ.format(size=size) if in_channels == 3 else code


def _prove_preparation(size: int, in_channels: int) -> None:
    code = prepare_code(size, in_channels)
    x = torch.randint(0, 256, (2, in_channels, size + 3, 2 * size), generator=torch.Generator().manual_seed(0))
    theirs, ours = (prepare(x.to(torch.uint8)) for prepare in (_run(code, "preprocess"), preprocessing(size)))
    if not torch.allclose(theirs, ours, rtol=0, atol=1e-4):
        apart = float((theirs - ours).abs().max())
        raise ExportError(f"the card's preprocess() gives other images than were trained on: {apart:.1e} apart")


@torch.no_grad()
def _compare(ours: nn.Module, theirs: nn.Module, x: Tensor, *, by: str) -> Json:
    if type(theirs).__name__ != "GraphModule":  # an exported program is in eval mode and cannot leave it
        theirs.eval()
    a, b = ours(x), theirs(x)
    apart = float((a - b).abs().max() / a.abs().max().clamp_min(1e-12)) if a.shape == b.shape else float("inf")
    if not apart <= TOLERANCE:
        raise ExportError(f"the exported encoder gives other features: {apart:.1e} apart, relative to the largest")
    return {"by": by, "largest relative difference": apart}


def _built(about: Json, options: Json) -> nn.Module:
    if "config" in about:
        return from_architecture(about["config"], size=about["size"])
    how = {**options, **({"pretrained": False} if options else {})}
    return build(about["name"], size=about["size"], in_channels=about["in_channels"], **how)


def _code(imports: str, made: str, file: str) -> str:
    load = f"encoder.load_state_dict(load_file({file!r}))\nencoder.eval()"
    return f"{imports}\nfrom safetensors.torch import load_file\n\nencoder = {made}\n{load}"


def as_timm(backbone: nn.Module) -> tuple[str, Json] | None:
    """The name of timm's model with the same weights, and what it is made with besides; None where timm has none."""
    if isinstance(backbone, Timm):
        return backbone.name, _timm_arguments(backbone)
    if isinstance(backbone, ViT) and backbone.cls_layer in (0, None):
        return "vit_base_patch16_224", {k: v for k, v in _vit_arguments(backbone).items() if k != "num_classes"}
    if isinstance(backbone, ResNet) and backbone.stem == "imagenet" and backbone.dim in RESNETS:
        return RESNETS[backbone.dim], {"in_chans": backbone.conv1.in_channels}
    return None


def _vit_arguments(vit: ViT) -> Json:
    """What timm's VisionTransformer is made with."""
    block: Any = vit.blocks[0]
    token = {"global_pool": "token"}
    mean = {"class_token": False, "global_pool": "avg", "fc_norm": False}
    return {
        "img_size": (vit.grid[0] * vit.patch, vit.grid[1] * vit.patch),
        "patch_size": vit.patch,
        "in_chans": vit.patch_embed.proj.in_channels,
        "embed_dim": vit.dim,
        "depth": len(vit.blocks),
        "num_heads": block.attn.heads,
        "mlp_ratio": block.mlp.fc1.out_features / vit.dim,
        "num_classes": 0,
        **(token if vit.cls_layer == 0 else mean),
    }


def _timm_arguments(backbone: Timm) -> Json:
    """What the model was made with besides its name, as far as its first layers tell."""
    model: Any = backbone.model
    first = next(m for m in model.modules() if isinstance(m, nn.Conv2d))
    found: Json = {"in_chans": first.in_channels}
    if backbone.mean:
        found |= {"global_pool": "avg", "fc_norm": False}
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    if size is not None:
        found["img_size"] = tuple(size)
    return found


# Resized as a whole: what `read` gives has that size already, and other images may have it too.
PREPROCESS = """\
import torch
from torch.nn import functional as F


def preprocess(images):
    \"\"\"uint8 (n, c, h, w) -> what the encoder takes\"\"\"
    x = F.interpolate(images / 255, ({size}, {size}), mode="bicubic", antialias=True).clamp(0, 1)
    return (x - torch.tensor({mean})[:, None, None]) / torch.tensor({std})[:, None, None]"""
READ = """


def read(path):
    \"\"\"a file -> uint8 (1, 3, {size}, {size}): upright, the middle square, resized once\"\"\"
    import numpy
    from PIL import Image, ImageOps

    with Image.open(path) as file:
        image = ImageOps.exif_transpose(file).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    image = image.crop((int(left), int(top), -int(-(left + side) // 1), -int(-(top + side) // 1)))
    box = (left % 1, top % 1, left % 1 + side, top % 1 + side)
    image = image.resize(({size}, {size}), Image.Resampling.BICUBIC, box=box)
    return torch.from_numpy(numpy.array(image)).permute(2, 0, 1)[None]"""
HEAD_CODE = """\
from safetensors.torch import load_file
from torch import nn

head = nn.Linear({features}, {classes})
head.load_state_dict(load_file({file!r}))

# head(encoder(preprocess(images))).softmax(1) has the probability of each class, in the order of the card"""
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
encoder.load_state_dict(load_file({file!r}))
encoder.eval()"""


def _convnet(net: ConvNet, file: str) -> str:
    stages = []
    for stage in net.stages.children():
        convs = [layer for layer in stage.children() if isinstance(layer, nn.Conv2d)]
        first = convs[0]
        stages.append(f"stage({first.in_channels}, {first.out_channels}, {len(convs)}, {first.stride[0]})")
    return CONVNET.format(stages=", ".join(stages), file=file)
