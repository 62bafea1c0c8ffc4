"""The section with everything needed to repeat a run."""

import json

from reglet.report.gather import RunData
from reglet.report.page.markup import esc, missing, section, table


def repeat(runs: list[RunData]) -> str:
    return section("repeat", "How to repeat it", "".join(map(_run, runs)))


def _run(run: RunData) -> str:
    r = run.repeat
    parts = [f"<h3>{esc(run.name)}</h3>"]
    if r.command is None:
        parts.append(missing("Command", "the run was made in Python, or this is an exported encoder alone"))
    else:
        parts.append(f'<pre tabindex="0"><code>{esc(r.command)}</code></pre>')
    facts = {"seed": r.seed, "fingerprint of the data": r.fingerprint}
    rows = [[name, f"<code>{esc(value)}</code>"] for name, value in facts.items() if value is not None]
    if rows:
        parts.append(table(["", ""], rows, label="Seed and data"))
    every = list(dict.fromkeys([*r.versions, *r.page_versions]))
    versions = [[esc(name), esc(r.versions.get(name, "")), esc(r.page_versions.get(name, ""))] for name in every]
    shown = table(["package", "of the run", "of this page"], versions, label="Versions")
    config = json.dumps({**r.config, "resolved": r.resolved}, indent=1, default=str)
    parts.append(f"<details><summary>Versions</summary>{shown}</details>")
    parts.append(
        f'<details><summary>Configuration</summary><pre tabindex="0"><code>{esc(config)}</code></pre></details>'
    )
    return "".join(parts)
