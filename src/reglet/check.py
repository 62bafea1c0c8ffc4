"""What public calls ask of their arguments, and of what they computed.

Arguments are checked when an object is built.  An error says what was expected and what came.  Values of tensors are
looked at only where that is free: reading them from an accelerator would make every step wait.
"""

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real

import torch
from torch import Tensor


def positive(**values: object) -> None:
    for name, value in values.items():
        if not _real(name, value, "a positive number") > 0:
            raise ValueError(f"{name} must be a positive number, got {value}")


def not_negative(**values: object) -> None:
    for name, value in values.items():
        if not _real(name, value, "a number of at least 0") >= 0:
            raise ValueError(f"{name} must be a number of at least 0, got {value}")


def finite(**values: object) -> None:
    for name, value in values.items():
        _real(name, value, "a finite number")


def probability(**values: object) -> None:
    for name, value in values.items():
        if not 0 <= _real(name, value, "a probability") <= 1:
            raise ValueError(f"{name} must be a probability, in [0, 1], got {value}")


def below_one(**values: object) -> None:
    """A share that may be nothing but not all: dropout, label smoothing."""
    for name, value in values.items():
        if not 0 <= _real(name, value, "a number in [0, 1)") < 1:
            raise ValueError(f"{name} must be a number in [0, 1), got {value}")


def whole(least: int, /, **values: object) -> None:
    """Whole numbers of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be a whole number of at least {least}, got {_shown(value)}")
        if value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value}")


def flag(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {_shown(value)}")


def choice(name: str, value: object, known: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in (known := tuple(known)):
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")


def tensor(name: str, x: object, *shape: int | None) -> None:
    """A floating-point tensor of that shape, which is not empty.  None: any size there; -1, last: any further axes."""
    more, shape = shape[-1:] == (-1,), tuple(size for size in shape if size != -1)
    expected = f"a floating-point tensor ({', '.join('_' if size is None else str(size) for size in shape)}"
    expected += ", ...)" if more else ")"
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"{name} must be {expected}, got {x.dtype if isinstance(x, Tensor) else _shown(x)}")
    fits = x.ndim >= len(shape) if more else x.ndim == len(shape)
    if not fits or any(size not in (None, got) for size, got in zip(shape, x.shape, strict=False)) or not x.numel():
        raise ValueError(f"{name} must be {expected} and not empty, got shape {tuple(x.shape)}")


def labels(y: object, *, n: int, classes: int, soft: bool = True) -> None:
    """`n` class numbers from 0 to classes - 1 or, with `soft`, rows of `classes` probabilities."""
    rows = f", or rows of probabilities ({n}, {classes})" if soft else ""
    expected = f"labels must be {n} class numbers from 0 to {classes - 1}{rows}"
    if not isinstance(y, Tensor):
        raise TypeError(f"{expected}; got {_shown(y)}")
    if y.is_floating_point() and soft:
        if y.shape != (n, classes):
            raise ValueError(f"{expected}; got {y.dtype} of shape {tuple(y.shape)}")
        return
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise TypeError(f"{expected}; got {y.dtype}")
    if y.shape != (n,):
        raise ValueError(f"{expected}; got shape {tuple(y.shape)}")
    if n and readable(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise ValueError(f"{expected}; got values {int(y.min())} to {int(y.max())}")


class OverflowsError(ValueError, FloatingPointError):
    """A result is not finite though the input is.  The loop takes it as it takes NaN: with a bundle to replay."""


def no_overflow(name: str, results: Mapping[str, Tensor], *inputs: Tensor) -> None:
    """Refuse a result that is NaN or infinite though the input is finite: its numbers are too large for their type.

    Looks only where looking is free, see `readable`.  Input that is not finite passes: what came of it says so.
    """
    bad = [key for key, value in results.items() if readable(value) and not bool(torch.isfinite(value).all())]
    if bad and all(readable(x) and bool(torch.isfinite(x).all()) for x in inputs):
        largest = max(float(x.detach().abs().max()) for x in inputs if x.numel())
        raise OverflowsError(
            f"{name}: {', '.join(bad)} overflows {results[bad[0]].dtype} for input of up to {largest:.2g}; "
            "expected smaller numbers"
        )


def readable(x: Tensor) -> bool:
    """Whether looking at a value costs nothing: an ordinary tensor of the CPU, not inside a compiler or a transform."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def _real(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {expected}, got {_shown(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be {expected}, got {value}")
    return float(value)


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text}" if len(text) <= 40 else type(value).__name__
