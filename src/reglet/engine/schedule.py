"""The learning rate: a line up during the warm-up, then one of three ways down.

With t the share of the steps after the warm-up that are done:

    cosine     lr (1 + cos(pi t)) / 2
    half       lr for t < 1/2, then lr 2 (1 - t): constant, and a line to zero, as image translation has it
    constant   lr
"""

import math
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "half": lambda t: min(1.0, 2 * (1 - t)),
    "constant": lambda t: 1.0,
}


def learning_rate(name: str, step: int, *, steps: int, warmup: int, peak: float) -> float:
    """Of step `step`, counted from 0, of `steps`, of which the first `warmup` rise.

    >>> [round(learning_rate("cosine", s, steps=6, warmup=2, peak=1.0), 3) for s in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * SCHEDULES[name]((step - warmup) / (steps - warmup))
