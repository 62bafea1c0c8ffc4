"""Losses on blocks by names: `attach.0.where=blocks.* attach.0.loss=sigreg attach.0.weight=0.01`, several at once."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from reglet import blocks, losses, schedules
from reglet.attach import Layout
from reglet.engine.arguments import arguments, call
from reglet.engine.config import Json, Named, no_such
from reglet.export import load_encoder
from reglet.method import Batch, Method
from reglet.methods import Regularized

ONE_PLACE: dict[str, Callable[..., nn.Module]] = {
    "visreg": losses.VISReg,
    "sigreg": losses.SIGReg,
    "weak_sigreg": losses.WeakSIGReg,
    "swd": losses.SWD,
    "vicreg": losses.VICReg,
    "koleo": losses.KoLeo,
    "frossl": losses.FroSSL,
    "coding_rate": losses.CodingRate,
    "bhep": losses.BHEP,
    "radial_vcreg": losses.RadialVCReg,
    "subspace_sigreg": losses.SubspaceSIGReg,
    "rdmreg": losses.RDMReg,
}
TWO_PLACES: dict[str, Callable[..., nn.Module]] = {
    "cosine": blocks.Cosine,
    "l2": blocks.L2,
    "cka": blocks.CKA,
    "gram": blocks.Gram,
    "patch_ntxent": blocks.PatchNTXent,
    "ntxent": losses.NTXentLoss,
    "barlow": losses.BarlowTwinsLoss,
    "wmse": losses.WMSELoss,
    "mmcr": losses.MMCRLoss,
    "emp_ssl": losses.EMPSSLLoss,
}
ATTACHED = {"sim": blocks.SIM, **ONE_PLACE, **TWO_PLACES}  # SIM is of a block's input and output, or of two places


def with_attachments(
    config: Named,
    method: Method,
    *,
    example: Tensor | Batch | None,
    inside: str = "backbone",
    channel_dim: int | None = None,
) -> Method:
    """`method` with every loss that `attach.N.*=` names, each a term "loss@where" or "loss@from->to".

    example: what the heads are built from.
    inside: the part of the method that blocks are named in, and that a teacher is fed with.
    channel_dim: of what its blocks put out, where that is known and not said.
    """
    for number, given in config.attached().items():
        method = _attached(config, method, number, given, example=example, inside=inside, channel_dim=channel_dim)
    return method


def detach(method: Method) -> None:
    """Take every attachment in a nest of wrappers off its blocks."""
    while isinstance(inner := getattr(method, "method", None), Method):
        if isinstance(method, Regularized):
            method.remove()
        method = inner


def _attached(
    config: Named,
    method: Method,
    number: str,
    given: Json,
    *,
    example: Tensor | Batch | None,
    inside: str,
    channel_dim: int | None,
) -> Method:
    room, name = f"attach.{number}", str(given["loss"])
    if name not in ATTACHED:
        raise ValueError(no_such(f"loss for {room}", name, set(ATTACHED)))
    where, to = given["where"], given.get("to")
    if (name in TWO_PLACES) != (to is not None) and name != "sim":
        wants = "compares two places: give to= too" if to is None else "regularizes one place: leave to= out"
        raise ValueError(f"{room}: {name} {wants}")
    layout = {key: given[key] for key in ("skip_tokens", "channel_dim", "batch_dim", "grid") if key in given}
    if channel_dim is not None:
        layout.setdefault("channel_dim", channel_dim)
    kind: Callable[..., Any] = ATTACHED[name]
    said: Json = {key: given[key] for key in ("rho", "stop", "projector", "on") if key in given}
    options = arguments(Regularized, room, said)
    known = inspect.signature(kind).parameters
    own: Json = {key: True for key in ("gather",) if key in known}  # so that W processes train as one does
    if name == "sim":  # which has its own tokens, and samples them itself
        own |= layout | ({"rho": options.pop("rho")} if "rho" in options else {})
    else:
        options.setdefault("on", "tokens")
        options["layout"] = Layout(**layout)
    loss = call(kind, config, f"{room}.loss", **own)
    if given.get("teacher"):
        options["teacher"], options["inputs"] = teacher(str(given["teacher"])), inside
    try:
        return Regularized(
            method,
            _names(where, inside),
            loss,
            to=None if to is None else _names(to, "" if given.get("teacher") else inside),
            weight=schedules.parse(str(given.get("weight", 1.0))),
            name=str(given.get("name", f"{name}@{where}" + ("" if to is None else f"->{to}"))),
            example=example,
            **options,
        )
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{room}: {error.args[0] if error.args else error}") from error


def _names(where: Any, inside: str) -> list[str]:
    names = [name.strip() for name in str(where).split(",") if name.strip()]
    return [f"{inside}.{name}" for name in names] if inside else names


def teacher(path: str) -> nn.Module:
    """The frozen encoder that a run left in a directory."""
    return load_encoder(Path(path))[0].requires_grad_(False)
