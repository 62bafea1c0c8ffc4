"""Whether a run may be trained longer, with the same bits as a run that was long from the start."""

from typing import Any

from reglet.engine.config import COMMANDS
from reglet.engine.optim import learning_rate

Json = dict[str, Any]


def why_not_longer(before: Json, after: Json, *, done: int, per_epoch: int) -> str:
    """The reason why not.  Empty if the longer run would have done the same in the first `done` steps."""
    old, new = (config["steps"] or config["epochs"] * per_epoch for config in (before, after))
    if new < done:
        return f"{done} steps are done, and {new} were asked for"
    rates = [
        [
            learning_rate(before["schedule"], i, steps=steps, warmup=round(before["warmup"] * steps), peak=before["lr"])
            for i in range(done)
        ]
        for steps in (old, new)
    ]
    if rates[0] != rates[1]:
        return (
            f"with schedule={before['schedule']} and warmup={before['warmup']:g} the learning rates of its first "
            f"{done} steps depend on how many there are in all, {old} or {new}. "
            "schedule=constant warmup=0 may be trained longer; init_from= starts a new run from these weights"
        )
    if before.get("command") not in COMMANDS:
        return "it was made in Python, and its method may depend on the number of steps"
    if before.get("equivariant") or (before["command"] != "train" and before["method"] in ("moco", "dino", "byol")):
        return f"the momentum of {before['equivariant'] or before['method']} rises with the share of the steps done"
    if 0 < before.get("heads_first", 0) < 1:
        return f"heads_first={before['heads_first']:g} is a share of all steps"
    for key, value in before.items():
        if key.endswith("weight") and isinstance(value, str) and not _is_number(value):
            return f"{key}={value} changes with the share of the steps done"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
