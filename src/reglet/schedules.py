"""A weight that changes with the step: `weight=cosine(0, 1)`, any function of the step, or a share of the gradient.

A loss takes a `Weight`.  A number stays a number and costs nothing.  A schedule gives its value when the loss is
computed.  The loop sets the step:

    loss = BarlowTwinsLoss(weight=cosine(0, 0.01))
    for step in range(1000):
        reglet.set_step(loss, step, 1000)
"""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

Number = int | float
Shape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, repr=False)
class Schedule:
    """From `start` at step 0 to `end` at the last step, and `end` after it.

    steps: the number of steps; None means all steps of the training.

    >>> [round(cosine(0, 1, steps=5)(step), 2) for step in range(6)]
    [0.0, 0.15, 0.5, 0.85, 1.0, 1.0]
    """

    shape: Shape
    start: Number
    end: Number
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            raise ValueError(f"a schedule is one of {get_args(Shape)}, got {self.shape!r}")
        checked_weight("start", self.start)
        checked_weight("end", self.end)
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"a schedule takes at least 1 step, got steps={self.steps}")

    def __call__(self, step: int, steps: int | None = None) -> float:
        """The weight at `step`.  steps: of the training, for a schedule without its own number of steps."""
        if self.shape == "constant":
            return float(self.end)
        over = self.steps if self.steps is not None else steps
        if over is None:
            raise ValueError(
                f"{self} runs over the whole training: give it steps=, or tell set_step how many there are"
            )
        done = min(max(step / max(over - 1, 1), 0.0), 1.0)
        if self.shape == "cosine":
            done = (1 - math.cos(math.pi * done)) / 2
        return float(self.start + (self.end - self.start) * done)

    def __repr__(self) -> str:
        ends = [self.end] if self.shape == "constant" else [self.start, self.end]
        steps = [] if self.steps is None else [f"steps={self.steps}"]
        return f"{self.shape}({', '.join([*map(repr, ends), *steps])})"


@dataclass(frozen=True)
class Share:
    """The weight with which a term has this share of the gradient; see `reglet.shares`.

    >>> parse("share:0.3")
    Share(share=0.3)
    """

    share: float

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share < 1:
            raise ValueError(f"a share of the gradient is between 0 and 1, got {self.share!r}")


# A number, a Schedule or function of the step, a Share; or one of these as text that `parse` takes.
Weight = int | float | str | Share | Callable[..., float]


def cosine(start: Number, end: Number, steps: int | None = None) -> Schedule:
    """Half a cosine: slow at both ends.

    >>> [round(cosine(0, 1)(step, 5), 3) for step in range(5)]
    [0.0, 0.146, 0.5, 0.854, 1.0]
    """
    return Schedule("cosine", start, end, steps)


def linear(start: Number, end: Number, steps: int | None = None) -> Schedule:
    """A straight line from `start` to `end`.

    >>> [linear(0, 1)(step, 5) for step in range(5)]
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return Schedule("linear", start, end, steps)


def constant(value: Number) -> Schedule:
    """The same at every step, as a schedule.

    >>> constant(0.5)(10)
    0.5
    """
    return Schedule("constant", value, value)


def parse(text: str) -> Weight:
    """A weight from text: `0.5`, `cosine(0, 1)`, `linear(0, 1, steps=1000)`, `share:0.3`.

    >>> parse("cosine(0,1)")
    cosine(0, 1)
    """
    makers: dict[str, Callable[..., Schedule]] = {"cosine": cosine, "linear": linear, "constant": constant}
    try:
        if text.strip().startswith("share:"):
            return Share(float(text.strip().removeprefix("share:")))
        tree = ast.parse(text.strip(), mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in makers:
            given = [ast.literal_eval(argument) for argument in tree.args]
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in tree.keywords}
            return makers[tree.func.id](*given, **named)
        return checked_weight("weight", float(text))
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"a weight is a number, or cosine(start, end), linear(start, end) or constant(value), the first two with "
            f"or without steps=, or share:0.3, a share of the gradient between 0 and 1; got {text!r}"
        ) from error


def checked_weight(name: str, weight: Weight) -> Weight:
    """`weight`.  Raises unless it is a finite number of at least 0, a share, or a function of the step.

    >>> checked_weight("weight", 0.5), checked_weight("weight", "share:0.3")
    (0.5, Share(share=0.3))
    """
    if isinstance(weight, str):
        try:
            return parse(weight)
        except ValueError as error:
            raise ValueError(str(error).replace("a weight", name, 1)) from error
    if callable(weight) or isinstance(weight, Share):
        return weight
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise TypeError(f"{name} must be a number or a function of the step, got {type(weight).__name__}")
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"{name} must be finite and not negative, got {weight}")
    return weight


def at(weight: Weight, step: int | None, steps: int | None = None, *, name: str = "weight") -> float:
    """The value of `weight` at `step` of `steps`.  name: of the weight, for errors.

    >>> at(linear(0, 1), 5, 11), at(0.3, None), at(lambda step: 2.0 * step, 3)
    (0.5, 0.3, 6.0)
    """
    if isinstance(weight, Share):
        raise ValueError(
            f"{name} is a share of the gradient, which this loss does not support: give it a number or schedule"
        )
    if not callable(weight):
        return float(weight)
    if isinstance(weight, Schedule) and weight.shape == "constant":
        return float(weight.end)
    if step is None:
        raise ValueError(f"{name} is the schedule {weight!r}, and the step is unknown: call reglet.set_step each step")
    value = weight(step, steps) if isinstance(weight, Schedule) else weight(step)
    return float(checked_weight(f"{name} at step {step}", value))  # type: ignore[arg-type]


class Scheduled:
    """A module with weights that may be schedules.  `self.now("weight")` is the value of `self.weight` at this step.

    >>> class Norm(Scheduled, nn.Module):
    ...     weight = linear(0, 1)
    >>> norm = Norm()
    >>> norm.set_step(5, 11)
    >>> norm.now("weight")
    0.5
    """

    _step: int | None = None
    _steps: int | None = None

    def set_step(self, step: int, steps: int | None = None) -> None:
        self._step, self._steps = step, steps

    def now(self, name: str) -> float:
        weight: Weight = getattr(self, name)
        return float(weight) if isinstance(weight, int | float) else self._scheduled(name)

    @torch.compiler.disable  # otherwise each step would be compiled anew
    def _scheduled(self, name: str) -> float:
        return at(getattr(self, name), self._step, self._steps, name=f"{type(self).__name__}.{name}")


def set_step(module: nn.Module, step: int, steps: int | None = None) -> None:
    """Set the step of all scheduled weights in `module`: `step` of `steps`, counted from 0.

    >>> from reglet.losses import BarlowTwinsLoss
    >>> loss = BarlowTwinsLoss(weight=cosine(0, 0.01))
    >>> set_step(loss, 50, 101)
    >>> round(loss.now("weight"), 4)
    0.005
    """
    for part in module.modules():
        if isinstance(part, Scheduled):
            part.set_step(step, steps)
