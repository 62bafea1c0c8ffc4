"""`reglet export`"""

import json
from pathlib import Path

from reglet.cli.words import OK, asks_help, pairs

HELP = """\
reglet export run=DIRECTORY [out=DIRECTORY]

Writes encoder.safetensors and card.json from the run's checkpoint, loads them back with the code on the card, compares
the features, and prints that code.
"""


def export(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    given = pairs(words, ("run", "out"))
    if "run" not in given:
        raise ValueError("reglet export needs run=; see reglet export --help")
    from reglet.train import export_run

    run = Path(given["run"])
    to = Path(given.get("out", run))
    export_run(run, to=to)
    show_card(to)
    return OK


def show_card(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    apart = card["verified"]["largest relative difference"]
    print(f"encoder.safetensors and card.json are in {folder}; loaded again, features differ by {apart:.1e}.")
    print("To load it:\n\n" + "\n".join("  " + line for line in card["load"].splitlines()) + "\n")
