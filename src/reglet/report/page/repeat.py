"""The section with everything needed to repeat a run."""

import json

from reglet.report.gather import RunData
from reglet.report.page.parts import Json, Section, Table


def repeat(runs: list[RunData]) -> Section:
    return Section("repeat", "Repeat", "How to repeat it", {"runs": [_run(run) for run in runs]})


def _run(run: RunData) -> Json:
    r = run.repeat
    facts = {"seed": r.seed, "fingerprint of the data": r.fingerprint, "images": _images(r.config)}
    every = dict.fromkeys([*r.versions, *r.page_versions])
    rows = [[name, r.versions.get(name, ""), r.page_versions.get(name, "")] for name in every]
    return {
        "name": run.name,
        "command": r.command,
        "facts": Table(
            "Seed and data", ["", ""], [[name, value] for name, value in facts.items() if value is not None]
        ),
        "versions": Table("Versions", ["package", "of the run", "of this page"], rows),
        "config": json.dumps({**r.config, "resolved": r.resolved}, indent=1, default=str),
    }


def _images(config: Json) -> str | None:
    """How images are prepared, for an encoder that is not of reglet."""
    encoder = config.get("encoder")
    return encoder.get("preprocess") if isinstance(encoder, dict) else None
