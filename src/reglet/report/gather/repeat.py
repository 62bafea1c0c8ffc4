"""Everything needed to repeat a run."""

import json
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from reglet.engine.config import COMMANDS, Config
from reglet.engine.run_folder import CONFIG, DERIVED
from reglet.export import CARD, versions

Json = dict[str, Any]


@dataclass(frozen=True)
class Repeat:
    """command: None for a run made in Python.  config: without what is derived.  seed, fingerprint: None if unknown.

    page_versions: what this page was made with, beside what the run was.
    """

    command: str | None
    config: Json
    resolved: Json
    versions: dict[str, str]
    page_versions: dict[str, str]
    seed: int | None
    fingerprint: str | None


def read_stored(run: Path) -> Json:
    """config.json, or the card of an exported encoder; empty where neither can be read."""
    for name in (CONFIG, CARD):
        try:
            stored: Json = json.loads((run / name).read_text())
        except (OSError, json.JSONDecodeError):
            continue
        return stored
    return {}


def repeat(stored: Json) -> Repeat:
    data = stored.get("data")
    fingerprint = stored.get("fingerprint", data.get("fingerprint") if isinstance(data, dict) else None)
    settings = {key: value for key, value in stored.items() if key not in DERIVED}
    return Repeat(
        command(settings),
        settings,
        stored.get("resolved", {}),
        stored.get("versions", {}),
        versions(),
        settings.get("seed"),
        fingerprint,
    )


def command(settings: Json) -> str | None:
    """The words that start this run: all that differ from the defaults.

    >>> command({"command": "pretrain", "epochs": 3, "data": "my photos/", "loss.slices": 64, "lr": 1e-3})
    "reglet pretrain epochs=3 'data=my photos/' loss.slices=64"
    """
    if settings.get("command") not in COMMANDS:
        return None
    usual = {f.name: f.default for f in fields(Config)} | {"resume": settings.get("resume")}
    words = [
        shlex.quote(f"{key}={_word(value)}")
        for key, value in settings.items()
        if key != "command" and usual.get(key) != value
    ]
    return " ".join(["reglet", settings["command"], *words])


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | None) else str(value)
