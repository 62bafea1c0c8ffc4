"""An encoder from a person's own code: `package.module:callable`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

EXPECTED = "a network (nn.Module), or a function without arguments that gives one, alone or as (network, preprocess)"


def python_object(spec: str) -> Any:
    """What `spec` names: a network, or what a function without arguments gives.  The current directory is searched too.

    >>> python_object("reglet.backbones:ConvNet").dim
    128
    """
    module, _, name = spec.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            raise ValueError(f"{spec}: there is no module {error.name!r}, here or among the installed ones") from error
        raise
    finally:
        sys.path.remove(here)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{spec}: {module} has no {name!r}")
        found = getattr(found, part)
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise ValueError(f"{spec} is {EXPECTED}; got {type(found).__name__}")
    try:
        made = found()
    except TypeError as error:
        raise ValueError(f"{spec} is {EXPECTED}. Called without arguments: {error}") from error
    return made


def looks_like(spec: str) -> bool:
    """Whether `spec` has the form module:name."""
    module, colon, name = spec.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))
