"""The network of a task as a file that plain torch runs: network.pt2, network.safetensors and card.json.

The program is run, on the file that was written, before anyone sees it.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from reglet.engine.config import from_flat
from reglet.engine.run_folder import CONFIG, DERIVED, RunError, read_config, write_json
from reglet.export import CARD, TOLERANCE, ExportError, versions
from reglet.method import Method
from reglet.seeded import seeded
from reglet.tasks import named
from reglet.tasks.run import NETWORK, REPORT, WITH, first_batch

Json = dict[str, Any]
PROGRAM = "network.pt2"
CODE = f'import torch\n\nnetwork = torch.export.load("{PROGRAM}").module()'


class Encode(nn.Module):
    """What a task's network gives: logits, masks, reconstructions, features or images."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, x: Tensor) -> Tensor:
        return self.method.encode(x)


def is_task(out: Path) -> bool:
    return (out / REPORT).exists()


def export_task(out: Path, *, to: Path | None = None) -> Json:
    """Of the first seed, with rhoSIM where it was trained so.  The data are read again: they say how large it is."""
    to = to or out
    stored = {key: value for key, value in read_config(out / CONFIG).items() if key not in (*DERIVED, "command")}
    name = stored.pop("task")
    task = named(name)
    run = _first_run(out)
    own = {"seed": run["run"]["seed"]} | ({"leave_out": run["run"]["fold"]} if run["run"]["fold"] else {})
    config = from_flat(stored | own, task.config)
    with seeded(config.seed):
        setup = task.setup(config, task.load(config))
    weights = load_file(out / "runs" / run["key"] / NETWORK)
    setup.method.load_state_dict(weights)
    network = Encode(setup.method.eval())
    x = first_batch(setup.feed).views[0][:4]
    to.mkdir(parents=True, exist_ok=True)
    program = torch.export.export(network, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    torch.export.save(program, to / PROGRAM)
    if (to / NETWORK).resolve() != (out / "runs" / run["key"] / NETWORK).resolve():
        save_file(weights, to / NETWORK)
    card = {
        "task": name,
        "model": config.model,
        "seed": config.seed,
        "input": list(x.shape[1:]),
        "load": CODE,
        "verified": {"largest relative difference": _apart(network, to / PROGRAM, x)},
        "scores": run["scores"].get("scores", run["scores"]),
        "config": config.flat(),
        "code": {"name": "reglet", "licence": "MIT"},
        "versions": versions(),
    }
    write_json(to / CARD, card)
    return card


def _first_run(out: Path) -> Json:
    found = []
    for file in sorted((out / "runs").glob("*.json")):
        stored: Json = json.loads(file.read_text())
        if (file.with_suffix("") / NETWORK).exists():
            found.append({**stored, "key": file.stem})
    if not found:
        raise RunError(f"{out} has no finished run with weights in runs/")
    return min(found, key=lambda each: (each["run"]["arm"] != WITH, each["run"]["seed"], each["run"]["fold"]))


@torch.no_grad()
def _apart(network: nn.Module, file: Path, x: Tensor) -> float:
    ours, theirs = network(x), torch.export.load(file).module()(x)
    apart = float((ours - theirs).abs().max() / ours.abs().max().clamp_min(1e-12))
    if not apart <= TOLERANCE:
        raise ExportError(f"{file} gives outputs that differ by {apart:.1e} from the network's")
    return apart
