"""transformers' vision models as backbones."""

import inspect
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.adapter import grid_of, pooled_width
from reglet.backbones.protocol import Grid, map_tokens
from reglet.types import WrongKindError

Pool = Literal["auto", "class", "mean"]
CODE = """\
import torch
from safetensors.torch import load_file
from transformers import AutoConfig
from {module} import {kind}

model = {kind}(AutoConfig.for_model(**{config!r})){pooler}
model.load_state_dict(load_file({file!r}))


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(pixel_values=x{more}).{read}


encoder = Encoder().eval()"""


class Transformers(nn.Module):
    """A `PreTrainedModel` that takes `pixel_values`, as a backbone.  Load one by name with `load_transformers`.

    `.model` is the model itself: its state_dict has transformers' keys.

    size: of the images, for the dry run that finds `dim`; default: that of the model's configuration.  Positions are
        interpolated where the images have another size and the model can do it.
    pool: "class" takes the class token, "mean" the mean over places.  "auto" takes the model's own pooled vector, or
        else the class token, or else the mean.  The pooler of a ViT (a dense layer and tanh) is not used: most released
        weights do not have it, and it would be random.

    >>> import transformers
    >>> sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    >>> net = Transformers(transformers.Dinov2Model(transformers.Dinov2Config(**sizes, image_size=28, patch_size=14)))
    >>> net.dim, net(torch.zeros(1, 3, 28, 28)).shape, net.tokens(torch.zeros(1, 3, 42, 28))[1]
    (32, torch.Size([1, 32]), (3, 2))
    """

    def __init__(self, model: nn.Module, *, size: int | Grid | None = None, pool: Pool = "auto") -> None:
        super().__init__()
        if pool not in ("auto", "class", "mean"):
            raise ValueError(f"pool is 'auto', 'class' or 'mean', got {pool!r}")
        self.model, self.pool = vision_part(model), pool
        self.in_channels = int(getattr(self.config, "num_channels", 3))
        self.dim = _dim(self, own_size(self.config) if size is None else size)

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    def extra_repr(self) -> str:
        return f"pool={self.pool!r}"

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        found = self._output(x)
        last = found["last_hidden_state"]
        match self._way(found, x):
            case "pooled", _:
                return found["pooler_output"].flatten(1)
            case "map", _:
                return last.mean((2, 3))
            case "class", _:
                return last[:, 0]
            case _, first:
                return last[:, first:].mean(1)

    def _way(self, found: dict[str, Tensor], x: Tensor) -> tuple[str, int]:
        """How the output becomes a vector: "pooled", "map", "class" or "mean"; and how many tokens are of no place."""
        last, name = found["last_hidden_state"], type(self.model).__name__
        if self.pool == "auto" and found.get("pooler_output") is not None and not has_dense_pooler(self.model):
            return "pooled", 0
        if last.ndim == 4:
            if self.pool == "class":
                raise WrongKindError(f"{name} has a map of features and no class token")
            return "map", 0
        _, first = self._grid(last, x)
        if self.pool == "class" and first == 0:
            raise WrongKindError(f"{name} has no class token: its tokens are all of places")
        return ("mean" if first == 0 or self.pool == "mean" else "class"), first

    def tokens(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        """Of each place of the last layer, without class token and registers."""
        last = self._output(x)["last_hidden_state"]
        if last.ndim == 4:
            return map_tokens(last)
        grid, first = self._grid(last, x)
        return last[:, first:], grid

    def _output(self, x: Tensor) -> dict[str, Tensor]:
        takes = inspect.signature(self.model.forward).parameters
        more: dict[str, Any] = {}
        if "interpolate_pos_encoding" in takes and tuple(x.shape[2:]) != _pair(own_size(self.config)):
            more["interpolate_pos_encoding"] = True
        if "noise" in takes and (places := _places(self.config, x)):  # a masked autoencoder: no masking, no shuffling
            more["noise"] = torch.arange(places, device=x.device, dtype=torch.float32).expand(len(x), -1)
        found = dict(self.model(pixel_values=x, **more))
        last = found.get("last_hidden_state")
        if last is None or last.ndim not in (3, 4) or len(last) != len(x):
            got = {name: tuple(value.shape) for name, value in found.items() if isinstance(value, Tensor)}
            raise WrongKindError(
                f"the features of {type(self.model).__name__} are neither one vector nor a map of tokens. Expected "
                f"last_hidden_state (n, t, d) or (n, c, h, w) with n = {len(x)}, got {got}"
            )
        return found

    def code(self, *, file: str) -> str | None:
        """Code without reglet that makes `encoder` with the weights in `file`; None for a masked autoencoder."""
        takes = inspect.signature(self.model.forward).parameters
        if "noise" in takes:
            return None
        x = torch.zeros(1, self.in_channels, *_pair(own_size(self.config)), device=next(self.parameters()).device)
        with torch.no_grad():
            way, first = self._way(self._output(x), x)
        kind, config = type(self.model), architecture(self.config)
        more = ", interpolate_pos_encoding=True" if "interpolate_pos_encoding" in takes else ""
        read = {
            "pooled": "pooler_output.flatten(1)",
            "map": "last_hidden_state.mean((2, 3))",
            "class": "last_hidden_state[:, 0]",
            "mean": f"last_hidden_state[:, {first}:].mean(1)",
        }[way]
        pooler = "\nmodel.pooler = None" if getattr(self.model, "pooler", ...) is None else ""
        return CODE.format(
            kind=kind.__name__, module=kind.__module__, config=config, more=more, read=read, pooler=pooler, file=file
        )

    def _grid(self, last: Tensor, x: Tensor) -> tuple[Grid, int]:
        """Rows and columns of the tokens, and how many stand before them."""
        image, patch, count = (x.shape[2], x.shape[3]), getattr(self.config, "patch_size", None), last.shape[1]
        if patch is not None:
            high, wide = _pair(patch)
            grid = (image[0] // high, image[1] // wide)
            if count >= grid[0] * grid[1]:
                return grid, count - grid[0] * grid[1]
        return grid_of(count, image=image), 0  # patches were merged, as in Swin


def architecture(config: Any) -> dict[str, Any]:
    """What a model is built from: its configuration without the names of classes."""
    return {k: v for k, v in config.to_diff_dict().items() if k not in ("id2label", "label2id", "transformers_version")}


def own_size(config: Any) -> int | Grid:
    """The size of image that a configuration names; 224 where it names none."""
    size = getattr(config, "image_size", None) or 224
    return size if isinstance(size, int) else _pair(size)


def _pair(value: Any) -> Grid:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _places(config: Any, x: Tensor) -> int | None:
    """How many patches a model that can mask them has in the images x."""
    if not hasattr(config, "mask_ratio"):
        return None
    high, wide = _pair(config.patch_size)
    return (x.shape[2] // high) * (x.shape[3] // wide)


def vision_part(model: nn.Module) -> Any:
    """The model itself, or of one for images and text, the part for images."""
    name = type(model).__name__
    config: Any = getattr(model, "config", None)
    if config is None:
        raise TypeError(
            f"expected a PreTrainedModel of transformers, got {name}; reglet.backbones.Adapter takes others"
        )
    if hasattr(config, "vision_config") and hasattr(model, "vision_model"):
        return model.vision_model
    if getattr(config, "is_encoder_decoder", False):
        raise WrongKindError(
            f"the features of {name} are neither one vector nor a map of tokens: it decodes queries. "
            "Give the encoder that it is made of"
        )
    if getattr(model, "main_input_name", None) != "pixel_values":
        raise WrongKindError(f"{name} takes {getattr(model, 'main_input_name', 'other input')}, and not images")
    return model


def has_dense_pooler(model: nn.Module) -> bool:
    return isinstance(getattr(getattr(model, "pooler", None), "dense", None), nn.Linear)


def _dim(net: Transformers, size: int | Grid) -> int:
    try:
        return pooled_width(net, size=size, in_channels=net.in_channels)
    except WrongKindError:
        raise
    except (ValueError, RuntimeError) as error:
        high, wide = _pair(size)
        own = _pair(own_size(net.config))
        advice = f": give size={own[0]}" if own[0] == own[1] else ""
        raise ValueError(
            f"{type(net.model).__name__} does not take images of {high} x {wide}: {error}. It was made for "
            f"{own[0]} x {own[1]}{advice}"
        ) from error
