"""What a run cost, as far as it has left traces, and what its encoder costs to use."""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reglet.engine.metrics import read_metrics
from reglet.engine.run_folder import METRICS
from reglet.evaluate.encoder_cost import forward_flops
from reglet.export import ENCODER
from reglet.report.gather.missing import Missing
from reglet.report.gather.source import Source


@dataclass(frozen=True)
class RunCost:
    """None where it is not known.  seconds: from the first to the last line of metrics.jsonl, pauses included.

    flops: of the encoder's forward pass, for one image.
    """

    steps: int | None
    images: int | None
    seconds: float | None
    images_per_second: float | None
    trained_parameters: int | None
    encoder_parameters: int | None
    flops: int | None
    encoder_bytes: int | None


def cost(run: Path, config: dict[str, Any], source: Source | Missing) -> RunCost:
    rows = read_metrics(run / METRICS) if (run / METRICS).exists() else []
    speeds = [row["images_per_second"] for row in rows if row.get("images_per_second")]
    steps = max((int(row["step"]) for row in rows), default=None)
    batch = config.get("batch")
    parameters = config.get("resolved", {}).get("parameters", config.get("parameters"))
    weights = flops = None
    if isinstance(source, Source) and source.network:
        weights = sum(p.numel() for p in source.encoder.parameters())
        one = source.test.batch(torch.zeros(1, dtype=torch.int64))
        flops = forward_flops(source.encoder, source.preprocess(one))
    file = run / ENCODER
    return RunCost(
        steps,
        steps * batch if steps is not None and isinstance(batch, int) else None,
        rows[-1]["time"] - rows[0]["time"] if len(rows) > 1 else None,
        statistics.median(speeds) if speeds else None,
        parameters if isinstance(parameters, int) else None,
        weights,
        flops,
        file.stat().st_size if file.exists() else None,
    )
