"""The plan that a run prints at its start: data, model, length, time and memory."""

import torch

from reglet.diagnostics.diseases import SHORT
from reglet.engine.budget import EPOCHS, Budget, seconds_of
from reglet.engine.build import Parts
from reglet.engine.config import Config
from reglet.progress import duration


def plan(parts: Parts, config: Config, asked: Config, budget: Budget | None, device: torch.device) -> str:
    """asked: the configuration as it was given.  Values that are defaults get a star."""

    def star(*keys: str) -> str:
        return "*" if all(getattr(asked, key) == getattr(Config, key) for key in keys) else ""

    order, found = parts.feed.order, parts.resolved()
    steps = config.steps or config.epochs * order.per_epoch
    classes = f", {len(parts.images.classes)} classes" if parts.images.classes else ""
    held = "no test images" if parts.test is None else f"{len(parts.test):,} test images"
    what = f"{config.method}{star('method')}" if config.command != "train" else "classifier"
    count = len(parts.policy.draw(1))
    views = f"{count} views" if count > 1 else "1 view"
    warmup, epochs = round(config.warmup * steps), f"{steps / order.per_epoch:.3g}"
    lines = [
        f"{config.command}: {what}, {config.model}{star('model')} with {found['parameters']:,} parameters, on "
        f"{parts.images.name}: {len(parts.images):,} images{classes}, {held}",
        f"{steps:,} steps of {order.batch}{star('batch')} images, {views} of {parts.size}{star('size')} px each, "
        f"{epochs}{star('epochs', 'steps')} epoch{'' if epochs == '1' else 's'}, lr {config.lr:g}{star('lr')} "
        f"after {warmup} steps of warm-up{star('warmup')}",
    ]
    if found["trained"] != found["parameters"]:
        lines.append(f"{found['trained']:,} of its parameters are trained")
    if budget is not None:
        lines += _cost(parts, config, asked, budget, device)
    if parts.images.classes and len(parts.images.classes) == 1:
        lines.append(f"all images are of one class, {parts.images.classes[0]!r}: nothing is scored by labels")
    if steps < SHORT:
        lines.append(f"{steps} steps are too few to mean anything: this is a trial of the command, not of the method")
    if any("*" in line for line in lines):
        lines.append("* by default")
    return "\n".join(lines)


def _cost(parts: Parts, config: Config, asked: Config, budget: Budget, device: torch.device) -> list[str]:
    def long(epochs: int) -> str:
        return duration(seconds_of(config, parts, budget, epochs=epochs, device=device))

    here = config.micro_batch or config.batch // (config.devices * config.nodes) // config.accumulate
    memory = budget.memory(here) / 1e9
    text = f"about {long(config.epochs)} and {memory:.2g} GB of memory, measured on {budget.images} images"
    if not asked.epochs and not config.steps and config.epochs < EPOCHS:
        text += f"; {EPOCHS} epochs would take {long(EPOCHS)}: epochs={EPOCHS}"
    whole = budget.memory(config.batch // (config.devices * config.nodes)) / 1e9
    if config.micro_batch and not asked.micro_batch:
        return [text, f"micro_batch={config.micro_batch}*: {config.batch} at a time would need {whole:.2g} GB; the "
                "gradient is that of the whole batch"]  # fmt: skip
    return [text]
