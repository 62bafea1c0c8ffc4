"""How images are prepared for an encoder: resized, cut and normalised as the model's own configuration says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from reglet.views.resample import Interpolation

Json = Mapping[str, Any]
Frame = Literal["middle", "whole"]
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_OTHERWISE = "a function of your own, package.module:name, that returns (network, preprocess) prepares images itself"
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}  # numbers of transformers
# What else an image processor of transformers may ask for, and what does not change one image
_HARMLESS = {"do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_convert_rgb", "do_flip_channel_order"}


@dataclass(frozen=True)
class Preparation:
    """size: side of the square that the encoder takes.

    frame: "middle" resizes the shorter side to `resize`; "whole" resizes both sides to it, whatever the proportions.
    Then the middle of `size` is cut out.  by: the source of this configuration.  remarks: what is not followed.
    """

    size: int
    resize: int
    frame: Frame = "middle"
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]
    bgr: bool = False
    by: str = ""
    remarks: tuple[str, ...] = ()

    def __call__(self, images: Tensor) -> Tensor:
        """Of images that are framed already: in [0, 1] and normalised."""
        x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        x = x.flip(1) if self.bgr else x
        mean, std = (torch.tensor(values, device=x.device)[:, None, None] for values in (self.mean, self.std))
        return (x - mean) / std

    def cut(self, images: Tensor) -> Tensor:
        """The middle of `size`, with black around it if the images are smaller."""
        side = images.shape[2]
        if side < self.size:
            first = (self.size - side + 1) // 2
            return F.pad(images, (first, self.size - side - first) * 2)
        first = round((side - self.size) / 2)
        return images[:, :, first : first + self.size, first : first + self.size]

    def words(self) -> str:
        """
        >>> Preparation(224, 256, by="timm's configuration").words()
        "shorter side to 256 px (bicubic), middle 224 px, mean 0.485 0.456 0.406, std 0.229 0.224 0.225; by timm's \
configuration"
        """
        what = "shorter side" if self.frame == "middle" else "both sides, proportions not kept,"
        cut = f", middle {self.size} px" if self.size != self.resize or self.frame == "middle" else ""
        colours = ", channels as BGR" if self.bgr else ""
        said = "".join(f"; {remark}" for remark in self.remarks)
        return (
            f"{what} to {self.resize} px ({self.interpolation}){cut}{colours}, mean {_numbers(self.mean)}, "
            f"std {_numbers(self.std)}; by {self.by}{said}"
        )

    def at(self, size: int) -> "Preparation":
        """The same for images of another size, in the same proportions."""
        return replace(self, size=size, resize=max(size, round(self.resize * size / self.size)))


def usual(size: int) -> Preparation:
    """Where nothing says how."""
    return Preparation(size, size, by="reglet's default, as there is no configuration")


def of_timm(config: Json) -> Preparation:
    """As timm's `create_transform` for evaluation: `config` is what `resolve_model_data_config` gives.

    >>> config = {"input_size": (3, 224, 224), "crop_pct": 0.875, "interpolation": "bicubic", "crop_mode": "center",
    ...           "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    >>> of_timm(config).resize
    256
    """
    _, high, wide = config["input_size"]
    size = square(high, wide)
    how, remarks = _interpolation(str(config["interpolation"]))
    mode = config.get("crop_mode", "center")
    if mode not in ("center", "squash"):
        raise ValueError(
            f"the model's configuration has crop_mode={mode}, and only center and squash are known here; {_OTHERWISE}"
        )
    return Preparation(
        size,
        math.floor(size / config["crop_pct"]),
        "whole" if mode == "squash" else "middle",
        how,
        tuple(config["mean"]),
        tuple(config["std"]),
        by="timm's configuration",
        remarks=remarks,
    )


def of_transformers(config: Json, *, size: int) -> Preparation:
    """As an image processor of transformers: `config` is its `to_dict()`, or its preprocessor_config.json.

    size: of the model, where the processor does not resize.

    >>> of_transformers({"do_resize": True, "size": {"shortest_edge": 256}, "crop_size": 224, "resample": 3,
    ...                  "do_center_crop": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}, size=224).frame
    'middle'
    """
    how, remarks = _interpolation(_PILLOW.get(int(config.get("resample", 3)), "unknown"))
    frame, resize = _transformers_size(config, size)
    crop = config.get("crop_size") if config.get("do_center_crop") else None
    side = resize if crop is None else crop if isinstance(crop, int) else square(crop["height"], crop["width"])
    if "crop_pct" in config and frame == "middle":  # ConvNeXt's
        side, resize = resize, int(resize / (config["crop_pct"] or 0.875))
    if extra := [key for key, value in config.items() if key.startswith("do_") and value and key not in _HARMLESS]:
        remarks = (*remarks, f"not followed: {', '.join(extra)}")
    if config.get("rescale_offset"):
        remarks = (*remarks, "not followed: rescale_offset")
    normal = config.get("do_normalize", True) and config.get("image_mean") is not None
    mean, std = (config["image_mean"], config["image_std"]) if normal else ([0.0] * 3, [1.0] * 3)
    if factor := config.get("rescale_factor"):  # of 0 to 255; here of 0 to 1
        mean, std = ([value / (255 * factor) for value in values] for values in (mean, std))
    bgr = bool(config.get("do_flip_channel_order"))
    by = "the configuration of its image processor"
    return Preparation(side, resize, frame, how, tuple(mean), tuple(std), bgr, by, remarks)


def _transformers_size(config: Json, own: int) -> tuple[Frame, int]:
    given = config.get("size")
    if not config.get("do_resize", True) or given is None:
        return "middle", own
    if isinstance(given, int):
        return ("middle" if config.get("do_center_crop") else "whole"), given
    if "height" in given and "width" in given:
        return "whole", square(given["height"], given["width"])
    shortest = given.get("shortest_edge")
    if not isinstance(shortest, int):
        raise ValueError(f"the image processor resizes to {dict(given)}, and images of one size are needed here")
    return ("whole" if "crop_pct" in config and shortest >= 384 else "middle"), shortest


def _interpolation(name: str) -> tuple[Interpolation, tuple[str, ...]]:
    if name in get_args(Interpolation):
        return cast(Interpolation, name), ()
    return "bicubic", (f"its {name} interpolation is read as bicubic",)


def square(high: int, wide: int) -> int:
    """The side of the square that a model takes."""
    if high != wide:
        raise ValueError(f"the model takes images of {high} x {wide}, and images are squares here; {_OTHERWISE}")
    return int(high)


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4g}" for value in values)
