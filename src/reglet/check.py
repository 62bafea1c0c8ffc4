"""Checks of arguments and results of public calls.

Arguments are checked when an object is built.  An error says what was expected and what came.  Values of tensors are
read only where that is free: reading them from an accelerator would make every step wait.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

_AT_ONCE = 1 << 24  # numbers that are checked at a time


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
    """A share that may be 0 but not 1: dropout, label smoothing."""
    for name, value in values.items():
        if not 0 <= _real(name, value, "a number in [0, 1)") < 1:
            raise ValueError(f"{name} must be a number in [0, 1), got {value}")


def between(low: int | float, high: int | float, /, **values: object) -> None:
    for name, value in values.items():
        if not low <= _real(name, value, f"a number from {low:g} to {high:g}") <= high:
            raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value}")


def interval(name: str, value: object, *, low: int | float = 0, high: int | float = math.inf) -> None:
    """low < a <= b <= high, and b finite."""
    expected = f"a range (a, b) with {low:g} < a <= b{f' <= {high:g}' if high < math.inf else ''}"
    a, b = (_real(name, each, expected) for each in _two(name, value, expected))
    if not low < a <= b <= high:
        raise ValueError(f"{name} must be {expected}, got {value}")


def whole(least: int, /, **values: object) -> None:
    """Whole numbers of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be a whole number of at least {least}, got {_shown(value)}")
        if value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value}")


def odd(**values: object) -> None:
    """Odd numbers, for windows, which need a middle."""
    whole(1, **values)
    for name, value in values.items():
        if isinstance(value, Integral) and value % 2 == 0:
            raise ValueError(f"{name} must be an odd number, got {value}")


def grid(**values: object) -> None:
    """(rows, columns)."""
    for name, value in values.items():
        for side in _two(name, value, "two whole numbers (rows, columns)"):
            whole(1, **{name: side})


def numbers(name: str, values: object, *, each: Callable[..., None] = finite) -> None:
    """One or more numbers, each checked by `each`."""
    if not isinstance(values, tuple | list) or not values:
        raise TypeError(f"{name} must be a sequence of numbers, got {_shown(values)}")
    for value in values:
        each(**{name: value})


def flag(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {_shown(value)}")


def choice(name: str, value: object, known: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in (known := tuple(known)):
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")


def floating(**values: object) -> None:
    """Tensors of floating-point numbers, of any shape."""
    for name, x in values.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            got = x.dtype if isinstance(x, Tensor) else _shown(x)
            raise TypeError(f"{name} must be a floating-point tensor, got {got}")


def tensor(name: str, x: object, *shape: int | None, floating: bool = True) -> None:
    """A floating-point tensor of that shape, not empty.  None means any size, and -1 at the end any further axes."""
    more, shape = shape[-1:] == (-1,), tuple(size for size in shape if size != -1)
    expected = "a floating-point tensor" if floating else "a tensor"
    expected += f" ({', '.join('_' if size is None else str(size) for size in shape)}{', ...' if more else ''})"
    if not isinstance(x, Tensor) or (floating and not x.is_floating_point()):
        raise TypeError(f"{name} must be {expected}, got {x.dtype if isinstance(x, Tensor) else _shown(x)}")
    fits = x.ndim >= len(shape) if more else x.ndim == len(shape)
    if not fits or any(size not in (None, got) for size, got in zip(shape, x.shape, strict=False)) or not x.numel():
        raise ValueError(f"{name} must be {expected} and not empty, got shape {tuple(x.shape)}")


def tensors(axes: Sequence[str], **given: object) -> None:
    """Floating-point tensors, each with its axes by letters: `tensors(["v n d", "k d"], z=z, directions=w)`.

    A letter means the same size everywhere.
    """
    sizes: dict[str, int] = {}
    for letters, (name, x) in zip((part.split() for part in axes), given.items(), strict=True):
        tensor(name, x, *(sizes.get(letter) for letter in letters))
        assert isinstance(x, Tensor)
        sizes.update(zip(letters, x.shape, strict=True))
        if any(sizes[letter] != size for letter, size in zip(letters, x.shape, strict=True)):
            raise ValueError(f"{name} must be ({', '.join(letters)}), got shape {tuple(x.shape)}")


def images(x: object, *, channels: tuple[int, ...] | None = None, floating: bool = True) -> None:
    """Images (n, c, h, w), not empty: floating point in [0, 1] or, unless `floating`, uint8 in 0..255."""
    if not isinstance(x, Tensor) or not (x.is_floating_point() or (x.dtype == torch.uint8 and not floating)):
        got = x.dtype if isinstance(x, Tensor) else _shown(x)
        raise TypeError(f"images are floating point in [0, 1]{'' if floating else ' or uint8 in 0..255'}, got {got}")
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise ValueError(f"images are (n, c, h, w) and not empty, got shape {tuple(x.shape)}")
    if channels is not None and x.shape[1] not in channels:
        raise ValueError(f"expected {' or '.join(map(str, channels))} channels, got {x.shape[1]}")


def one_each(x: Tensor, **values: object) -> None:
    """One value, or one row of values, for each sample."""
    for name, value in values.items():
        if not isinstance(value, Tensor) or not value.ndim:
            raise TypeError(f"{name} must be a tensor with one value or row for each sample, got {_shown(value)}")
        if len(value) != len(x):
            raise ValueError(f"{name} was drawn for a batch of {len(value)}, got one of {len(x)}")


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


def class_numbers(n: int | None = None, /, **values: object) -> None:
    """Labels (n,) from 0, for any number of classes.  n: None means one or more."""
    for name, y in values.items():
        expected = f"{name} must be {'one or more' if n is None else n} class numbers from 0"
        if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise TypeError(f"{expected}; got {y.dtype if isinstance(y, Tensor) else _shown(y)}")
        if y.ndim != 1 or (not len(y) if n is None else len(y) != n):
            raise ValueError(f"{expected}; got shape {tuple(y.shape)}")
        if len(y) and int(y.min()) < 0:
            raise ValueError(f"{expected}; got {int(y.min())}")


def all_finite(**values: Tensor) -> None:
    """For numbers that are read anyway.  A loss in a training step must not read them."""
    for name, x in values.items():
        if not is_finite(x):
            name = name.replace("_", " ")
            raise ValueError(f"{int((~torch.isfinite(x)).sum())} of {x.numel()} {name} are not finite")


def is_finite(x: Tensor) -> bool:
    """Whether all numbers are.

    >>> is_finite(torch.tensor([1e38, 3e38])), is_finite(torch.tensor([torch.inf, -torch.inf]))
    (True, False)
    """
    if bool(x.detach().sum().isfinite()):  # ten times as fast; NaN and infinities do not cancel each other
        return True
    rows = x.split(max(1, _AT_ONCE // max(1, x[0].numel()))) if x.ndim and len(x) else [x]
    return all(bool(torch.isfinite(part).all()) for part in rows)  # numbers that are may have a sum that is not


class OverflowsError(ValueError, FloatingPointError):
    """A result is not finite although the input is.  The loop treats it like NaN, and writes a bundle to replay."""


def no_overflow(name: str, results: Mapping[str, Tensor], *inputs: Tensor) -> None:
    """Raise if a result is NaN or infinite although the input is finite: its numbers are too large for their type.

    It reads values only where that is free, see `readable`.  It does not raise for input that is not finite.
    """
    bad = [key for key, value in results.items() if readable(value) and not _all_finite(value)]
    if bad and all(readable(x) and bool(torch.isfinite(x).all()) for x in inputs):
        largest = max(float(x.detach().abs().max()) for x in inputs if x.numel())
        raise OverflowsError(
            f"{name}: {', '.join(bad)} overflows {results[bad[0]].dtype} for input of up to {largest:.2g}; "
            "expected smaller numbers"
        )


def _all_finite(x: Tensor) -> bool:
    return math.isfinite(x.item()) if x.numel() == 1 else bool(torch.isfinite(x).all())


def readable(x: Tensor) -> bool:
    """Whether reading a value is free: for an ordinary tensor on the CPU, not inside a compiler or a transform."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def _real(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {expected}, got {_shown(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be {expected}, got {value}")
    return float(value)


def _two(name: str, value: object, expected: str) -> Sequence[object]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{name} must be {expected}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text}" if len(text) <= 40 else type(value).__name__
