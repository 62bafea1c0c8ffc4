"""The directory of a run: its files, and whether a run may start or continue there."""

import json
from pathlib import Path
from typing import Any

from reglet.atomic import replacing
from reglet.engine.checkpoint import read_about
from reglet.engine.config import Config, from_flat
from reglet.engine.longer import why_not_longer
from reglet.engine.settings import FREE
from reglet.export import versions

Json = dict[str, Any]
CONFIG, METRICS, CHECKPOINT = "config.json", "metrics.jsonl", "checkpoint.safetensors"


DERIVED = ("resolved", "fingerprint", "versions")  # entries of config.json that were not given


class RunError(ValueError):
    """A run cannot start or continue as asked."""


def prepare(out: Path, config: Json, *, resume: bool, per_epoch: int = 0) -> None:
    """Check that `config` may run in `out`, and write it there.  per_epoch: steps, to check for a longer training."""
    stored = out / CONFIG
    if not resume:
        require_free(out)
        out.mkdir(parents=True, exist_ok=True)
        write_json(stored, {**config, "versions": versions()})
        return
    if not stored.exists():
        raise RunError(f"there is no run to resume in {out}: {CONFIG} is missing")
    before = read_config(stored)
    length = {key: before.get(key) for key in ("epochs", "steps")}
    if per_epoch and length != {key: config.get(key) for key in length} and not differences(before, config | length):
        if why := why_not_longer(before, config, done=done(out), per_epoch=per_epoch):
            raise RunError(f"{out} cannot be trained longer with the result of one long run: {why}")
        write_json(stored, {**config, "versions": versions()})
        return
    if changed := differences(before, config):
        raise RunError(
            f"{out} was started with another configuration, so resume would not continue it: {'; '.join(changed)}. "
            f"Leave those out, or start a new run, with init_from={out} if it should have these weights"
        )


def require_free(out: Path) -> None:
    if (out / CONFIG).exists() or (out / CHECKPOINT).exists():
        raise RunError(
            f"{out} holds a run already ({progress(out)}). resume=true continues it; for a new one give another out"
        )


def differences(stored: Json, given: Json) -> list[str]:
    """The changes that a resumed run must not have, in words."""
    keys = sorted((stored.keys() | given.keys()) - FREE - {"init_from"})
    plain = json.loads(json.dumps(given))
    return [
        f"{key} was {stored.get(key)!r} and is {plain.get(key)!r}" for key in keys if stored.get(key) != plain.get(key)
    ]


def read_config(path: Path) -> Json:
    """config.json without its versions."""
    try:
        config: Json = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise RunError(f"{path} is no configuration of a run: {error}") from error
    config.pop("versions", None)
    return config


def read_run(out: Path) -> tuple[Config, Json]:
    """The configuration of the run in `out`, and all of its config.json."""
    stored = read_config(out / CONFIG)
    if "resolved" not in stored:
        raise RunError(f"the run in {out} was made in Python, not by names, so it cannot be built again")
    return from_flat({key: value for key, value in stored.items() if key not in DERIVED}), stored


def done(out: Path) -> int:
    """Steps at the last checkpoint."""
    return int(read_about(out / CHECKPOINT)["step"]) if (out / CHECKPOINT).exists() else 0


def progress(out: Path) -> str:
    path = out / CHECKPOINT
    return f"checkpoint of step {read_about(path)['step']}" if path.exists() else "no checkpoint yet"


def free_folder(out: Path) -> str:
    """The first of out, out-2, out-3, ... that holds no run."""
    path, i = out, 2
    while (path / CONFIG).exists():
        path, i = out.with_name(f"{out.name}-{i}"), i + 1
    return str(path)


def write_json(path: Path, value: Json) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")
