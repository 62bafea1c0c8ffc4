"""`reglet export`"""

import json
from pathlib import Path
from textwrap import indent

from reglet.cli.words import OK, asks_help, directory

HELP = """\
reglet export DIRECTORY [out=DIRECTORY] [which=best] [hub=DIRECTORY] [onnx=FILE]

For a run on images: writes encoder.safetensors and card.json from its checkpoint, loads them back with the code on the
card, compares the features, and prints that code.
For a task: writes network.pt2, which runs in plain torch, its weights, and card.json.

  which         last, or best: the weights that keep_best= kept
  hub           a folder in the layout of the Hugging Face Hub: model.safetensors, config.json and a model card; if
                timm has the architecture, timm.create_model("local-dir:FOLDER", pretrained=True) builds it
  licence       of the weights, for the model card: mit, cc-by-4.0, ...
  push_to_hub   user/name: uploads that folder (needs huggingface_hub, and a token in its usual place)
  onnx          a file that ends in .onnx; it is run in onnxruntime and its outputs are compared
"""


KEYS = ("run", "out", "which", "hub", "licence", "push_to_hub", "onnx")


def export(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    run, given = directory("export", words, KEYS)
    if "push_to_hub" in given and "hub" not in given:
        raise ValueError("push_to_hub= uploads the folder that hub= writes: give both")
    from reglet.engine.run_folder import CONFIG, RunError
    from reglet.export import CARD
    from reglet.hub import push, write_hub
    from reglet.onnx import write_onnx
    from reglet.tasks.export import export_task, is_task
    from reglet.train import export_run

    to = Path(given.get("out", run))
    if is_task(run):
        if wrong := {"hub", "onnx"} & given.keys():
            raise ValueError(f"{wrong.pop()}= is for encoders of images; {run} is a run of a task")
        card = export_task(run, to=to)
        apart = card["verified"]["largest relative difference"]
        print(f"network.pt2, network.safetensors and card.json are in {to}; run again, outputs differ by {apart:.1e}.")
        print("To load it:\n\n" + indent(card["load"], "  "))
        return OK
    if (run / CONFIG).exists():
        export_run(run, to=to, which=given.get("which", "last"))
    elif not (run / CARD).exists():
        raise RunError(f"{run} is no directory of a run or of an exported encoder: no {CONFIG} and no {CARD}")
    show_card(to)
    if "hub" in given:
        folder = write_hub(to, Path(given["hub"]), licence=given.get("licence", ""), results=run)
        print(f"{folder} is ready for the Hugging Face Hub; its README.md is the model card.")
    if "push_to_hub" in given:
        print(f"uploaded to {push(Path(given['hub']), given['push_to_hub'])}")
    if "onnx" in given:
        apart = write_onnx(to, Path(given["onnx"]))["largest relative difference"]
        print(f"{given['onnx']} is written; in onnxruntime features differ by {apart:.1e}.")
    return OK


def show_card(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    apart = card["verified"]["largest relative difference"]
    print(f"encoder.safetensors and card.json are in {folder}; loaded again, features differ by {apart:.1e}.")
    print("To load it:\n\n" + indent(card["load"], "  ") + "\n")
    print('To prepare images for it, the code under "preprocess" in the card; encoder(preprocess(...)) gives features.')
