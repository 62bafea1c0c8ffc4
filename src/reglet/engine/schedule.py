"""The learning rate: a line up, half a cosine down.

lr(s) = lr (s + 1) / w                                    for s < w
lr(s) = lr (1 + cos(pi (s - w) / (S - w))) / 2            after
"""

import math


def learning_rate(step: int, *, steps: int, warmup: int, peak: float) -> float:
    """Of step `step`, counted from 0, of `steps`, of which the first `warmup` rise.

    >>> [round(learning_rate(s, steps=6, warmup=2, peak=1.0), 3) for s in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
