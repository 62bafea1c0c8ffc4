"""Equivariance by names: `equivariant=ser equivariant.layer=3`, around any method, with the views that it needs."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from reglet import views
from reglet.engine.arguments import arguments
from reglet.engine.config import Config, unknown
from reglet.engine.feed import ViewPolicy
from reglet.groups import Symmetry
from reglet.method import Method
from reglet.methods.augself import AugSelf
from reglet.methods.equimod import EquiMod
from reglet.methods.equivariant import Equivariant
from reglet.methods.equivariant_views import AlignedViews
from reglet.methods.essl import ESSL
from reglet.methods.stl import STL, PartnerViews

EQUIVARIANT: dict[str, Callable[..., Method]] = {
    "ser": Equivariant,
    "augself": AugSelf,
    "equimod": EquiMod,
    "essl": ESSL,
    "stl": STL,
}
SYMMETRY = ("turns", "flips", "area", "complement")  # parts of the group that may be left out or changed
BESIDES = {"ser": {*SYMMETRY, "crop"}}  # arguments that are not the method's own
MADE_HERE = {"group", "jitter", "sigma", "example"}  # arguments that are not given as words


def make_equivariant(config: Config, method: Method, policy: views.Policy, *, example: Tensor) -> Method:
    """`method` inside the wrapper that `equivariant=` names.  policy: of the method's views."""
    given = config.of("equivariant")
    if not config.equivariant:
        if given:
            raise ValueError(f"equivariant.* are arguments of what equivariant= names: one of {', '.join(EQUIVARIANT)}")
        return method
    name = config.equivariant
    if name not in EQUIVARIANT:
        raise ValueError(f"equivariant is one of {', '.join(EQUIVARIANT)}; got {name!r}")
    if config.command == "train":
        raise ValueError(f"equivariant={name} compares two views of each image, which reglet train does not make")
    make = EQUIVARIANT[name]
    own = set(inspect.signature(make).parameters) - MADE_HERE - {"method"}
    for key in given:
        if key not in own | BESIDES.get(name, set()):
            allowed = {f"equivariant.{other}" for other in own | BESIDES.get(name, set())}
            raise ValueError(unknown(f"equivariant.{key}", allowed))
    found = arguments(make, "equivariant", {key: value for key, value in given.items() if key in own})
    if name == "ser":
        found["group"] = _symmetry(given)
    if name == "augself":
        first = policy.views[0]
        found |= {"jitter": first.jitter, "sigma": max(first.blur.sigma) if first.blur else 1.0}
    return make(method, example=example, **found)


def equivariant_views(config: Config, policy: views.Policy, backbone: nn.Module) -> ViewPolicy:
    """`policy` with what the wrapper needs: aligned pairs, equal partners, or one more view."""
    given, first = config.of("equivariant"), policy.views[0]
    if config.equivariant == "ser":
        crop: Any = given.get("crop", "shared") or "none"  # the command line reads none as None
        parts = config.devices * config.nodes * config.accumulate
        fraction = given.get("fraction", _default(Equivariant, "fraction"))
        return AlignedViews(policy, fraction=fraction, crop=crop, ranks=parts)
    if config.equivariant == "stl":
        return PartnerViews(policy)
    if config.equivariant == "equimod":
        (plain,) = views.policy("plain", size=policy.size).views
        return _with(policy, replace(plain, normalize=first.normalize))
    if config.equivariant == "essl":
        patch = getattr(backbone, "patch", 8)
        side = max(patch, round(policy.size * 3 / 7 / patch) * patch)  # 96 px of 224
        small = views.View(side, views.ResizedCrop((0.05, 0.14)), normalize=first.normalize)
        return _with(policy, small)
    return policy


def _with(policy: views.Policy, view: views.View) -> views.Policy:
    return replace(policy, views=(*policy.views, view))


def _symmetry(given: Mapping[str, Any]) -> Symmetry:
    if given.get("area") is not None:
        raise ValueError(f"equivariant.area=none leaves scale out; other areas are given in Python: {given['area']!r}")
    return Symmetry(**arguments(Symmetry, "equivariant", {key: given[key] for key in SYMMETRY if key in given}))


def _default(make: Callable[..., Any], name: str) -> Any:
    return inspect.signature(make).parameters[name].default
