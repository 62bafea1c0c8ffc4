"""An encoder in the layout of the Hugging Face Hub: model.safetensors, config.json, and a model card as README.md.

Where timm has the architecture, config.json is timm's, and `timm.create_model("local-dir:FOLDER", pretrained=True)`
builds it.  That is tried before anyone sees the folder.  Other architectures come with encoder.pt2, which torch runs.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reglet.engine.run_folder import write_json, write_text
from reglet.export import CARD, ENCODER, PROGRAM, TOLERANCE, ExportError, Json, as_timm, load_encoder, plain

WEIGHTS, CONFIG, MODEL_CARD = "model.safetensors", "config.json", "README.md"
TIMM = """\
import timm

encoder = timm.create_model("local-dir:FOLDER", pretrained=True).eval()  # or "hf-hub:USER/NAME\""""


def write_hub(encoder: Path, folder: Path, *, results: Path | None = None, licence: str = "") -> Path:
    """The exported encoder in the directory `encoder`, as a folder for the Hub.

    results: directory with eval.json, doctor.json and config.json, where it is another one.
    licence: of the weights, as the Hub names it ("mit", "cc-by-4.0").  Who trained them decides.
    """
    backbone, _, card = load_encoder(encoder)
    if (folder / CONFIG).exists() and not (folder / WEIGHTS).exists():
        raise ExportError(f"{folder} holds a {CONFIG} that is not of a model: give a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(encoder / ENCODER, folder / WEIGHTS)
    shutil.copyfile(encoder / CARD, folder / CARD)
    if (encoder / PROGRAM).exists():
        shutil.copyfile(encoder / PROGRAM, folder / PROGRAM)
    config = timm_config(backbone, card)
    write_json(folder / CONFIG, config or {"library_name": "reglet", "architecture": card["architecture"]})
    tried = config is not None and _proved(backbone, folder, card)
    found = {name: _read((results or encoder) / f"{name}.json") for name in ("eval", "doctor", "config")}
    write_text(folder / MODEL_CARD, model_card(card, found, licence=licence, timm=config is not None, tried=tried))
    return folder


def push(folder: Path, name: str) -> str:
    """Upload `folder` as the model `name`, "user/model".  Gives its address."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise ImportError("push_to_hub= needs huggingface_hub: pip install 'reglet[hub]'") from error
    if name.count("/") != 1 or not all(name.split("/")):
        raise ValueError(f"push_to_hub is user/name, got {name!r}")
    api = HfApi()
    address = str(api.create_repo(name, exist_ok=True))
    api.upload_folder(repo_id=name, folder_path=folder, commit_message="Encoder from reglet")
    return address


def timm_config(backbone: nn.Module, card: Json) -> Json | None:
    """What timm reads: the architecture, what it is made with, and how images are prepared for it."""
    if (found := as_timm(backbone)) is None:
        return None
    name, arguments = found
    about = card["architecture"]
    normalize = plain(about["size"]).views[0].normalize
    assert normalize is not None
    gray = about["in_channels"] == 1
    mean, std = ([sum(v) / len(v)] if gray else list(v) for v in (normalize.mean, normalize.std))
    return {
        "architecture": name,
        "num_classes": 0,
        "num_features": about["features"],
        "model_args": arguments,
        "pretrained_cfg": {
            "num_classes": 0,
            "input_size": [about["in_channels"], about["size"], about["size"]],
            "interpolation": "bicubic",
            "crop_pct": 1.0,
            "crop_mode": "center",
            "mean": mean,
            "std": std,
        },
    }


@torch.no_grad()
def _proved(backbone: nn.Module, folder: Path, card: Json) -> bool:
    """Whether timm is here and was seen to build the same encoder from the folder."""
    try:
        import timm
    except (ImportError, RuntimeError):  # RuntimeError: a torchvision that does not fit this torch
        return False
    about = card["architecture"]
    x = torch.randn(2, about["in_channels"], about["size"], about["size"], generator=torch.Generator().manual_seed(0))
    theirs: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    ours, other = backbone(x), theirs(x)
    apart = float((ours - other).abs().max() / ours.abs().max().clamp_min(1e-12))
    if not apart <= TOLERANCE:
        raise ExportError(f"timm builds another encoder from {folder}: features are {apart:.1e} apart")
    return True


def model_card(
    card: Json, found: dict[str, Json | None], *, licence: str = "", timm: bool = False, tried: bool = True
) -> str:
    """README.md with the metadata that the Hub reads: what it is, how it was made, how good it is, how to load it.

    found: eval.json, doctor.json and config.json of the run, where there are any.
    timm: whether timm has the architecture.  tried: whether it was seen to load.
    """
    about, data, method = card["architecture"], card.get("data", {}), card.get("method", {})
    kind = method.get("loss") or method.get("method") or "unknown"
    lines = ["---", f"library_name: {'timm' if timm else 'reglet'}", "pipeline_tag: image-feature-extraction"]
    lines += [f"license: {licence or 'other'}", f"tags: [reglet, self-supervised-learning, {json.dumps(kind)}]"]
    lines += [*_results(found["eval"], data), "---", "", f"# {about['name']}, trained by reglet", ""]
    lines += [
        f"An image encoder: {about['in_channels']} x {about['size']} x {about['size']} pixels to {about['features']} "
        f"features. Trained with `{kind}` (`reglet {method.get('command', 'pretrain')}`).",
        "",
        "## Load it",
        "",
    ]
    code = TIMM if timm else card["load"].replace(ENCODER, WEIGHTS)
    lines += ["```python", code, "```", ""]
    if timm and not tried:
        lines += ["timm could not be imported where this was written, so these lines were not tried.", ""]
    lines += ["Prepare images for it with", ""]
    lines += ["```python", card["preprocess"], "```", "", "## Data", ""]
    classes = f", {len(data['classes'])} classes" if data.get("classes") else ""
    lines += [
        f"{data.get('images', '?')} images of `{data.get('name', '?')}`{classes}. Licence of the data: "
        f"{data.get('licence', 'not stated')}. Licence of these weights: {licence or 'not stated'}.",
        "",
        "## Scores",
        "",
        *_scores(found["eval"]),
        "",
        "## The doctor",
        "",
        _verdict(found["doctor"]),
        "",
        "## How it was made",
        "",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in card.get("versions", {}).items()) + ".",
    ]
    if found["config"]:
        settings = json.dumps({k: v for k, v in found["config"].items() if k != "resolved"}, indent=1)
        lines += ["", "<details><summary>every setting</summary>", "", "```json", settings, "```", "", "</details>"]
    return "\n".join(lines) + "\n"


def _scores(found: Json | None) -> list[str]:
    """A table of the probes."""
    if not found or not found.get("probes"):
        return ["Not evaluated: `reglet eval` was not run before the export."]
    n = found["data"]["test"]["images"]
    rows = ["| probe | accuracy | 95 % interval |", "|---|---|---|"]
    for name, numbers in found["probes"].items():
        low_high = [f"{100 * end:.1f}" for end in numbers.get("interval", ())]
        rows.append(f"| {name} | {100 * numbers['accuracy']:.1f} | {' to '.join(low_high) or 'several draws'} |")
    return [*rows, "", f"On {n} test images of `{found['data']['test']['name']}`; the interval is over test images."]


def _results(found: Json | None, data: Json) -> list[str]:
    """The Hub's `model-index`, by which it shows and sorts scores."""
    if not found or not found.get("probes"):
        return []
    scores = {probe: numbers["accuracy"] for probe, numbers in found["probes"].items()}
    name = json.dumps(str(data.get("name", "unknown")))
    lines = ["model-index:", "- name: encoder", "  results:", "  - task: {type: image-classification}"]
    lines += [f"    dataset: {{name: {name}, type: {name}}}", "    metrics:"]
    return lines + [
        f"    - {{type: accuracy, name: {probe} probe, value: {100 * s:.2f}}}" for probe, s in scores.items()
    ]


def _verdict(found: Json | None) -> str:
    if not found:
        return "Not asked: `reglet doctor` was not run before the export."
    return f"`{found['verdict']}`, on `{found.get('data', '?')}`."


def _read(path: Path) -> Json | None:
    return json.loads(path.read_text()) if path.exists() else None
