"""Evaluates one encoder, of any source, and writes the numbers beside it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reglet.data import Images
from reglet.engine.run_folder import write_json
from reglet.evaluate.compute import compute
from reglet.evaluate.evaluation import Evaluation, evaluate
from reglet.evaluate.labelled import at_most
from reglet.evaluate.probing import DEFAULT
from reglet.evaluate.source import Encoder, open_source
from reglet.evaluate.untrained import untrained
from reglet.export import versions

Json = dict[str, Any]
REPORT = "eval.json"


def evaluate_run(
    run: str | Path,
    *,
    data: str = "",
    train: str = "",
    test: str = "",
    probes: Sequence[str] = DEFAULT,
    blocks: int = 1,
    batch: int = 256,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    seed: int = 0,
    most: int = 0,
    pretrained: bool = True,
    size: int = 0,
    out: Path | None = None,
) -> Evaluation:
    """Evaluate the encoder `run` on `data`.  The numbers go to eval.json in its directory, or to `out`.

    run: the directory of a run or of an exported encoder, timm/NAME, or anything else that `open_source` takes.

    data: as for pretraining.  The default is the run's own data, with its split.  train, test: names of its parts.  If
    it has no parts, the test images are those that every command holds out (`reglet.data.hold_out`).
    most: images of each part, at most; 0: all.  pretrained, size: as for `open_source`.

    >>> from tempfile import TemporaryDirectory
    >>> import reglet
    >>> keys = {"model": "convnet", "steps": 2, "batch": 16, "knn_every": 0, "shown": False}
    >>> with TemporaryDirectory() as place:
    ...     run = reglet.pretrain("digits", out=f"{place}/a", **keys)
    ...     seen = evaluate_run(run.path, probes=("knn",), most=100)
    >>> sorted(seen.untrained)
    ['random weights', 'raw pixels, 16 x 16']
    """
    where = compute(accelerator=accelerator, devices=devices, precision=precision)
    encoder = open_source(run, pretrained=pretrained, size=size)
    how: Json = {"probes": probes, "batch": batch, "compute": where, "seed": seed}
    found = evaluate_encoder(encoder, *encoder.pair(data, train, test), **how, blocks=blocks, most=most)
    if out is not None or encoder.folder is not None:
        write_evaluation(out or Path(encoder.folder or ".") / REPORT, encoder, found)
    return found


def evaluate_encoder(
    encoder: Encoder, train: Images, test: Images, *, blocks: int = 1, most: int = 0, beside: bool = True, **how: Any
) -> Evaluation:
    """One encoder on two parts.  beside: whether the same is done with random weights and raw pixels.  how: see
    `evaluate`."""
    if most:
        train, test = at_most(train, most), at_most(test, most)
    found = evaluate(encoder.net, train, test, encoder.prepare, **how, blocks=blocks, head=encoder.head)
    if not beside or encoder.rows is not None:  # features of nothing else are there
        return found
    kept: Json = {"about": encoder.depends, "folder": encoder.folder}
    return replace(found, untrained=untrained(encoder.untrained(), train, test, encoder.prepare, **kept, **how))


def write_evaluation(path: Path, encoder: Encoder, found: Evaluation) -> None:
    write_json(path, {**found.json(), "encoder": encoder.about, "versions": versions()})
