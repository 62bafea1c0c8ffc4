"""A weight that changes with the step: `weight=cosine(0, 1)`, or any function of the step.

A loss takes a `Weight`.  A number stays a number and costs nothing.  A schedule is asked for its value when the loss is
computed; the loop says which step that is:

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
    """From `start` at step 0 to `end` at the last step, and `end` from there on.

    steps: over how many steps; None means all steps of the training.

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
        """The weight at `step`.  steps: of the training, for a schedule that has no number of its own."""
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


Weight = int | float | Callable[..., float]  # a number, a Schedule, or a function of the step


def cosine(start: Number, end: Number, steps: int | None = None) -> Schedule:
    """Half a cosine: slow at both ends."""
    return Schedule("cosine", start, end, steps)


def linear(start: Number, end: Number, steps: int | None = None) -> Schedule:
    return Schedule("linear", start, end, steps)


def constant(value: Number) -> Schedule:
    return Schedule("constant", value, value)


def parse(text: str) -> Weight:
    """What a command line says: `0.5`, `cosine(0, 1)`, `linear(0, 1, steps=1000)`.

    >>> parse("cosine(0,1)")
    cosine(0, 1)
    """
    makers: dict[str, Callable[..., Schedule]] = {"cosine": cosine, "linear": linear, "constant": constant}
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in makers:
            given = [ast.literal_eval(argument) for argument in tree.args]
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in tree.keywords}
            return makers[tree.func.id](*given, **named)
        return checked_weight("weight", float(text))
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"a weight is a number, or cosine(start, end), linear(start, end) or constant(value), the first two with "
            f"or without steps=; got {text!r}"
        ) from error


def checked_weight(name: str, weight: Weight) -> Weight:
    """`weight`, if it is one: a finite number of at least 0, or something to call with the step."""
    if callable(weight):
        return weight
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise TypeError(f"{name} must be a number or a function of the step, got {type(weight).__name__}")
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"{name} must be finite and not negative, got {weight}")
    return weight


def at(weight: Weight, step: int | None, steps: int | None = None, *, name: str = "weight") -> float:
    """The number that `weight` is at `step` of `steps`.  name: what an error calls it."""
    if not callable(weight):
        return float(weight)
    if isinstance(weight, Schedule) and weight.shape == "constant":
        return float(weight.end)
    if step is None:
        raise ValueError(f"{name} is the schedule {weight!r}, and no step was told: call reglet.set_step at every step")
    value = weight(step, steps) if isinstance(weight, Schedule) else weight(step)
    return float(checked_weight(f"{name} at step {step}", value))  # type: ignore[arg-type]


class Scheduled:
    """A module with weights that may be schedules.  `self.now("weight")` is what `self.weight` is at this step."""

    _step: int | None = None
    _steps: int | None = None

    def set_step(self, step: int, steps: int | None = None) -> None:
        self._step, self._steps = step, steps

    def now(self, name: str) -> float:
        weight: Weight = getattr(self, name)
        return self._scheduled(name) if callable(weight) else float(weight)

    @torch.compiler.disable  # otherwise each step would be compiled anew
    def _scheduled(self, name: str) -> float:
        return at(getattr(self, name), self._step, self._steps, name=f"{type(self).__name__}.{name}")


def set_step(module: nn.Module, step: int, steps: int | None = None) -> None:
    """Tell the scheduled weights of `module` and of everything inside it that this is `step` of `steps`, from 0."""
    for part in module.modules():
        if isinstance(part, Scheduled):
            part.set_step(step, steps)
