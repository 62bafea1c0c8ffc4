"""Modules of a model, chosen by dotted name, glob, list of those, class or predicate."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn

Where = str | Sequence[str] | type[nn.Module] | Callable[[str, nn.Module], bool]
"""Which blocks: a name or glob, several, a class, or a predicate of name and module.

>>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
>>> [list(matching(net, where)) for where in ("0", ["0", "1"], nn.ReLU, lambda name, module: name == "1")]
[['0'], ['0', '1'], ['1'], ['1']]
"""

LISTED = 60  # names printed in an error


def matching(model: nn.Module, where: Where) -> dict[str, nn.Module]:
    """The modules of `model` that `where` matches, in model order.  Each comes once, under its first name that matches.

    A `*` stays within one level and `**` spans any number: `"layer*.*"` matches the blocks of a ResNet, but not the
    convolutions inside them.  `""` is the model itself, which no glob matches.  A predicate is called with name and
    module.

    >>> list(matching(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU())), "**.0"))
    ['0', '1.0']
    """
    every = dict(model.named_modules(remove_duplicate=False))
    chosen: set[str] = set()
    for wanted in _wanted(where):
        found = {name for name, module in every.items() if wanted(name, module)}
        if not found:
            raise LookupError(_nothing_matches(where, wanted, every))
        chosen |= found
    once: dict[int, str] = {}
    for name, module in every.items():
        if name in chosen:
            once.setdefault(id(module), name)
    return {name: every[name] for name in once.values()}


def in_order(model: nn.Module, where: Where) -> list[tuple[str, nn.Module]]:
    """`matching`, but for a list in the order of the list, because it is paired with another."""
    if isinstance(where, Sequence) and not isinstance(where, str):
        return [found for one in where for found in matching(model, one).items()]
    return list(matching(model, where).items())


def _wanted(where: Where) -> list[Callable[[str, nn.Module], bool]]:
    if isinstance(where, str):
        return [_Glob(where)]
    if isinstance(where, type):
        return [lambda _name, module: isinstance(module, where)]
    if isinstance(where, Sequence) and where and all(isinstance(glob, str) for glob in where):
        return [_Glob(glob) for glob in where]
    if callable(where):
        return [where]
    raise TypeError(f"blocks are chosen by name, list of names, class or predicate(name, module); got {where!r}")


class _Glob:
    def __init__(self, glob: str) -> None:
        self.glob = glob

    def __call__(self, name: str, _module: nn.Module) -> bool:
        return name == self.glob or (name != "" and _fits(name.split("."), self.glob.split(".")))


def _fits(name: list[str], glob: list[str]) -> bool:
    if not glob:
        return not name
    if glob[0] == "**":
        return any(_fits(name[i:], glob[1:]) for i in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], glob[0]) and _fits(name[1:], glob[1:])


def _nothing_matches(where: Where, wanted: object, every: dict[str, nn.Module]) -> str:
    names = [name for name in every if name]
    what = repr(wanted.glob) if isinstance(wanted, _Glob) else getattr(where, "__name__", repr(where))
    close = get_close_matches(wanted.glob, names, n=3, cutoff=0.5) if isinstance(wanted, _Glob) else []
    hint = f" Did you mean {', '.join(map(repr, close))}?" if close else ""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"no module matches {what}.{hint} This model has: {', '.join(names[:LISTED])}{more}"
