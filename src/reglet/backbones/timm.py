"""timm's networks as backbones."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from reglet.backbones.adapter import pooled_width
from reglet.backbones.hugging_face_hub import in_cache, reachable
from reglet.backbones.protocol import Grid, map_tokens
from reglet.types import WrongKindError


class Timm(nn.Module):
    """The timm model `name` without its classifier; pooled as it pools itself.

    `.model` is timm's own module: `Timm(...).model.state_dict()` has timm's keys.

    size: of the images.  Models made for one size are made for this one, and adapt to others where they can.
    mean: for a ViT, the features are the mean of the patch tokens after the last norm, whatever the model has by
        default.  Prediction of masked tokens wants that.

    >>> import torch
    >>> net = Timm("test_vit", size=32)
    >>> net.dim, net(torch.zeros(1, 3, 32, 32)).shape
    (64, torch.Size([1, 64]))
    """

    def __init__(
        self,
        name: str,
        *,
        size: int | Grid = 224,
        in_channels: int = 3,
        drop_path: float = 0.0,
        pretrained: bool = False,
        mean: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.mean = name, mean
        pool = {"global_pool": "avg", "fc_norm": False} if mean else {}
        self.model = _create(
            name, size=size, in_channels=in_channels, drop_path=drop_path, pretrained=pretrained, **pool
        )
        try:
            self.dim = pooled_width(self.model, size=size, in_channels=in_channels)
        except (AssertionError, RuntimeError) as error:
            own = getattr(self.model, "default_cfg", {}).get("input_size", (3, 224, 224))[-1]
            said = str(error).splitlines()[0]
            raise ValueError(
                f"timm's {name} takes no images of size {size}: {said}. It was made for size={own}"
            ) from error

    def extra_repr(self) -> str:
        return repr(self.name)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.model(x)
        return y

    def tokens(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        """The last feature map.  Its width may differ from `dim`, where a model widens after pooling."""
        model: Any = self.model  # what timm's networks have besides forward, mypy cannot know
        if hasattr(model, "forward_intermediates"):
            maps = model.forward_intermediates(x, indices=1, norm=True, output_fmt="NCHW", intermediates_only=True)
            return map_tokens(maps[-1])
        y = model.forward_features(x) if hasattr(model, "forward_features") else None
        if not isinstance(y, Tensor) or y.ndim != 4:
            raise WrongKindError(f"timm's {self.name} gives no feature map, so it has no tokens with a grid")
        return map_tokens(y)

    def visible(self, x: Float[Tensor, "n c h w"], places: Int64[Tensor, "n k"]) -> Float[Tensor, "n k d"]:
        """The tokens of an image of which only the patches at `places` are seen, numbered row by row.

        A class token and registers are seen by the patches, as in the whole image.
        """
        model = self.as_vit()
        prefix = model.num_prefix_tokens
        y = model._pos_embed(model.patch_embed(x))
        seen = y[:, prefix:].gather(1, places[:, :, None].expand(-1, -1, y.shape[2]))
        y = model.norm(model.blocks(model.norm_pre(torch.cat([y[:, :prefix], seen], dim=1))))
        tokens: Tensor = y[:, prefix:]
        return tokens

    def as_vit(self) -> Any:
        """timm's module, if it is a plain ViT."""
        from timm.models.vision_transformer import VisionTransformer

        if type(self.model) is not VisionTransformer:
            raise WrongKindError(
                f"timm's {self.name} is a {type(self.model).__name__}: only a VisionTransformer can be shown some "
                "patches of an image"
            )
        return self.model


def data_config(model: str | nn.Module) -> dict[str, Any]:
    """How timm prepares images for the model of this name, or for a model: size, interpolation, crop, mean, std.

    >>> data_config("test_vit")["input_size"]
    (3, 160, 160)
    """
    timm = _import(model if isinstance(model, str) else type(model).__name__)
    if isinstance(model, str) and model.startswith("local-dir:"):
        return dict(timm.data.resolve_data_config(pretrained_cfg=_cfg_of_folder(model)))
    if isinstance(model, str):
        _require_known(timm, model)
        return dict(timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(model).to_dict()))
    return dict(timm.data.resolve_model_data_config(model))


def _cfg_of_folder(name: str) -> dict[str, Any]:
    stored = json.loads((Path(name.removeprefix("local-dir:")) / "config.json").read_text(encoding="utf-8"))
    return dict(stored.get("pretrained_cfg", stored))


def _import(name: str) -> Any:
    try:
        import timm
    except ImportError as error:
        raise ImportError(f"timm/{name} needs timm: pip install 'reglet[timm]'") from error
    return timm


def _require_known(timm: Any, name: str) -> None:
    if not name.startswith("local-dir:") and not timm.is_model(name):
        close = ", ".join(get_close_matches(name, timm.list_models(), n=5)) or "none of a similar name"
        raise LookupError(f"timm {timm.__version__} has no model {name!r}. It has {close}; see timm.list_models()")


def _require_weights(timm: Any, name: str) -> None:
    """An error at once where the weights are neither here nor to be had: timm itself would try for a minute."""
    if name.startswith("local-dir:"):
        return
    cfg = timm.get_pretrained_cfg(name)
    if cfg is None or not (cfg.hf_hub_id or cfg.url or cfg.file):
        raise ValueError(f"timm has no pretrained weights for {name}; it has some for {_with_weights(timm, name)}")
    if (
        cfg.file
        or not cfg.hf_hub_id
        or in_cache(cfg.hf_hub_id, "model.safetensors", "pytorch_model.bin")
        or reachable()
    ):
        return
    raise ValueError(
        f"the weights of timm/{name} are not here, and huggingface.co is not to be reached. Bring config.json and "
        f"model.safetensors of huggingface.co/{cfg.hf_hub_id} here, and give the folder that they are in; or take "
        "random weights: pretrained=false"
    )


def _with_weights(timm: Any, name: str) -> str:
    return ", ".join(timm.list_pretrained(f"{name.split('.')[0]}*")[:5]) or "none of a similar name"


def _create(
    name: str, *, size: int | Grid, in_channels: int, drop_path: float, pretrained: bool, **pool: Any
) -> nn.Module:
    timm = _import(name)
    _require_known(timm, name)
    if pretrained:
        _require_weights(timm, name)
    common: dict[str, Any] = {"pretrained": pretrained, "num_classes": 0, "in_chans": in_channels, **pool}
    if drop_path:
        common["drop_path_rate"] = drop_path
    # which models take these is written nowhere but in their signatures
    extras: tuple[dict[str, Any], ...] = ({"img_size": size, "dynamic_img_size": True}, {"img_size": size}, {})
    for extra in extras:
        try:
            model: nn.Module = timm.create_model(name, **common, **extra)
            return model
        except TypeError as error:
            if pool and "'fc_norm'" in str(error):
                raise WrongKindError(f"timm's {name} is no ViT whose patch tokens could be averaged") from error
            if not any(f"'{key}'" in str(error) for key in extra):
                raise
        except Exception as error:
            if pretrained:
                raise ValueError(_not_there(name, error)) from error
            raise
    raise AssertionError("the last attempt returns or raises")


def _not_there(name: str, error: Exception) -> str:
    said = " ".join(str(error).split())
    said = said if len(said) < 300 else f"{said[:300]} ..."
    return (
        f"the weights of timm/{name} could not be loaded: {said} Without network: download its model.safetensors where "
        f"there is one, and give model=timm/{name} init_from=FILE in place of pretrained=true"
    )
