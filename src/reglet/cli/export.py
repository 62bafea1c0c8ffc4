"""`reglet export`"""

import json
from pathlib import Path
from textwrap import indent

from reglet.cli.words import OK, asks_help, pairs

HELP = """\
reglet export run=DIRECTORY [out=DIRECTORY]

Of a run on images: writes encoder.safetensors and card.json from its checkpoint, loads them back with the code on the
card, compares the features, and prints that code.
Of a task: writes network.pt2, which plain torch runs, its weights, and card.json.
"""


def export(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    given = pairs(words, ("run", "out"))
    if "run" not in given:
        raise ValueError("reglet export needs run=; see reglet export --help")
    from reglet.tasks.export import export_task, is_task
    from reglet.train import export_run

    run = Path(given["run"])
    to = Path(given.get("out", run))
    if is_task(run):
        card = export_task(run, to=to)
        apart = card["verified"]["largest relative difference"]
        print(f"network.pt2, network.safetensors and card.json are in {to}; run again, outputs differ by {apart:.1e}.")
        print("To load it:\n\n" + indent(card["load"], "  "))
        return OK
    export_run(run, to=to)
    show_card(to)
    return OK


def show_card(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    apart = card["verified"]["largest relative difference"]
    print(f"encoder.safetensors and card.json are in {folder}; loaded again, features differ by {apart:.1e}.")
    print("To load it:\n\n" + indent(card["load"], "  ") + "\n")
    print('To prepare images for it, the code under "preprocess" in the card; encoder(preprocess(...)) gives features.')
