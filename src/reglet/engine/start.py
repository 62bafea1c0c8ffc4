"""Which network given weights belong to, if the files beside them tell."""

import json
from pathlib import Path
from typing import Any

from reglet.export import CARD

Json = dict[str, Any]


def model_of(start: str) -> Json:
    """The keys `model`, `model.*` and `size` for the weights at `start`: hf/NAME, a folder that transformers saved, a
    run or an exported encoder.  Empty for a single file.

    >>> model_of("hf/facebook/dinov2-small"), model_of("weights.safetensors")
    ({'model': 'hf/facebook/dinov2-small'}, {})
    """
    if start.startswith("hf/"):
        return {"model": start}
    folder = Path(start)
    if not start or not folder.is_dir():
        return {}
    if (folder / CARD).exists():
        card = json.loads((folder / CARD).read_text())
        options = {f"model.{key}": value for key, value in card.get("model", {}).items() if key != "pretrained"}
        return {"model": card["architecture"]["name"], "size": card["architecture"]["size"], **options}
    config = folder / "config.json"
    if config.is_file() and "model_type" in json.loads(config.read_text()):
        return {"model": f"hf/{start}"}
    return {}
