"""`reglet pretrain | train | embed | export | list`, with arguments key=value named as in Python."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from reglet.engine.checkpoint import CheckpointError
from reglet.engine.config import Config, from_flat, parse
from reglet.engine.folder import CONFIG, DERIVED, RunError, read_config
from reglet.engine.guard import NonFiniteError
from reglet.export import ExportError

Json = dict[str, Any]
OK, WRONG, NOT_FINITE = 0, 2, 3
EXPECTED = (ValueError, LookupError, TypeError, ImportError, OSError, RunError, CheckpointError, ExportError)

USAGE = """\
reglet: from a folder of images to an encoder

  reglet pretrain data=photos/ model=vit_tiny method=visreg out=runs/a
  reglet train    data=photos/ model=resnet18 out=runs/b       with labels: photos/CLASS/*.jpg
  reglet embed    run=runs/a data=photos/ out=features.npz     features of every image
  reglet export   run=runs/a out=encoder/                      weights and card, as pretrain leaves them in runs/a
  reglet list     [data | models | methods | losses | views]   every name there is

  reglet COMMAND --help explains a command and every key that it takes.
"""
PRETRAIN = """\
reglet pretrain key=value ...         learn an encoder from images without labels
reglet pretrain runs/a/config.json    repeat a run, in a new directory; keys that follow change it

  reglet pretrain                                              the built-in digits, in minutes on a laptop
  reglet pretrain data=photos/ model=vit_tiny out=runs/a
  reglet pretrain out=runs/a resume=true                       go on where it was stopped or killed
  reglet pretrain data=photos/ init_from=runs/a out=runs/b     a new run from the weights of another

In `out`: config.json (everything needed to repeat the run), metrics.jsonl, checkpoint.safetensors, and at the end
encoder.safetensors with card.json, which says how to load it without reglet.
Arguments of a part are given with its name: loss.slices=1024, model.patch=4, method.momentum=0.99, views.n_local=2.
"""
TRAIN = """\
reglet train key=value ...            learn a classifier from images with labels: a folder class/, a .npz with labels

  reglet train data=photos/ model=resnet18 out=runs/b
  reglet train data=photos/ model=resnet18 init_from=runs/a labels=0.1 out=runs/c      few labels, pretrained weights
"""
EMBED = """\
reglet embed run=DIRECTORY data=... out=FILE

  run    directory of a run, or of an exported encoder
  data   as for pretrain: digits, a folder, a .npz, hf/NAME, torchvision/NAME
  split  part of the data, such as test; default: all
  out    FILE.npz, or FILE.parquet where pyarrow is installed: features, and labels and domain where the data have them
  batch  images at a time (256)
"""
EXPORT = """\
reglet export run=DIRECTORY [out=DIRECTORY]

Writes encoder.safetensors and card.json from the run's checkpoint, loads them back with the code on the card, compares
the features, and prints that code.
"""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for a mistake in what was asked, 3 for a loss that was not finite."""
    given = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    commands: dict[str, Callable[[list[str]], int]] = {
        "pretrain": lambda rest: _run("pretrain", rest),
        "train": lambda rest: _run("train", rest),
        "embed": _embed,
        "export": _export,
        "list": _list,
    }
    if not given or given[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return OK if given else WRONG
    if given[0] not in commands:
        close = get_close_matches(given[0], commands, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return _fail(f"there is no command {given[0]!r}.{hint} There are {', '.join(commands)}")
    try:
        return commands[given[0]](given[1:])
    except NonFiniteError as error:
        return _fail(str(error), code=NOT_FINITE)
    except EXPECTED as error:
        if debug:
            raise
        return _fail(
            f"{error}\n(--debug shows where this came from)" if not isinstance(error, RunError) else str(error)
        )


def _run(command: str, words: list[str]) -> int:
    if _asks_help(words):
        print(PRETRAIN if command == "pretrain" else TRAIN)
        print("Keys and their defaults:")
        print("\n".join(_keys(command)))
        return OK
    from reglet.train import run

    config = _config(command, words)
    result = run(config)
    if not result.finished:
        print(f"stopped after step {result.steps}; resume: reglet {command} out={result.out} resume=true")
        return OK
    from reglet.dist import rank

    if rank() == 0:
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in result.metrics.items() if key in ("knn", "accuracy"))
        print(f"{result.out}: {result.steps} steps{', ' if numbers else ''}{numbers}")
        _show_card(result.out)
    return OK


def _config(command: str, words: list[str]) -> Config:
    """Words of the command line over the stored configuration, where one is named or resumed."""
    files = [word for word in words if "=" not in word]
    given = {key: parse(key, text) for key, text in _pairs([word for word in words if "=" in word]).items()}
    if len(files) > 1:
        raise ValueError(f"one config.json at most, got {' '.join(files)}")
    stored: Json = {}
    if files:
        if given.get("resume"):
            raise ValueError("a config.json repeats a run from its start; to continue one give out=... resume=true")
        stored = _stored(Path(files[0]))
        given.setdefault("out", _free(Path(stored["out"])))
        stored["resume"] = False
    elif given.get("resume"):
        out = Path(given.get("out", Config.out))
        if not (out / CONFIG).exists():
            raise RunError(f"there is no run to resume in {out}: {CONFIG} is missing")
        stored = _stored(out / CONFIG)
        if given.get("init_from"):
            raise ValueError("resume continues the run in `out`, init_from starts a new one from weights: give one")
        stored["init_from"] = ""  # its weights are in the checkpoint
    values = {**stored, "command": stored.get("command", command), **given}
    if values["command"] != command:
        raise ValueError(f"that run was made by reglet {values['command']}, not by reglet {command}")
    return from_flat(values)


def _stored(path: Path) -> Json:
    values = {key: value for key, value in read_config(path).items() if key not in DERIVED}
    if values.get("command") not in ("pretrain", "train"):
        raise ValueError(f"{path} is of a run that was made in Python, not by names")
    return values


def _free(out: Path) -> str:
    """The first of out, out-2, out-3, ... that holds no run."""
    path, i = out, 2
    while (path / CONFIG).exists():
        path, i = out.with_name(f"{out.name}-{i}"), i + 1
    return str(path)


def _pairs(words: list[str], allowed: Sequence[str] | None = None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.lstrip("-")
        if not equals:
            raise ValueError(f"arguments are key=value, got {word!r}")
        if key in pairs:
            raise ValueError(f"{key}= is given twice")
        if allowed is not None and key not in allowed:
            close = get_close_matches(key, allowed, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]}=?" if close else ""
            raise ValueError(f"unknown key {key!r}.{hint} There are {', '.join(allowed)}")
        pairs[key] = text
    return pairs


def _embed(words: list[str]) -> int:
    if _asks_help(words):
        print(EMBED, end="")
        return OK
    given = _pairs(words, ("run", "data", "split", "out", "batch"))
    for key in ("run", "out"):
        if key not in given:
            raise ValueError(f"reglet embed needs {key}=; see reglet embed --help")
    from reglet.engine.embed import embed

    out = Path(given["out"])
    shape = embed(
        Path(given["run"]),
        given.get("data", "digits"),
        out,
        split=given.get("split", ""),
        batch=int(given.get("batch", 256)),
    )
    print(f"{out}: {shape[0]} images, {shape[1]} features")
    return OK


def _export(words: list[str]) -> int:
    if _asks_help(words):
        print(EXPORT, end="")
        return OK
    given = _pairs(words, ("run", "out"))
    if "run" not in given:
        raise ValueError("reglet export needs run=; see reglet export --help")
    from reglet.train import export_run

    run = Path(given["run"])
    to = Path(given.get("out", run))
    export_run(run, to=to)
    _show_card(to)
    return OK


def _show_card(folder: Path) -> None:
    import json

    card = json.loads((folder / "card.json").read_text())
    apart = card["verified"]["largest relative difference"]
    print(f"encoder.safetensors and card.json are in {folder}; loaded again, features differ by {apart:.1e}.")
    print("To load it:\n\n" + "\n".join("  " + line for line in card["load"].splitlines()) + "\n")


def _list(words: list[str]) -> int:
    from reglet import views
    from reglet.backbones.build import NAMES
    from reglet.data.load import SOURCES
    from reglet.engine.build import LOSSES, METHODS

    rooms: dict[str, Sequence[str]] = {
        "data": SOURCES,
        "models": (*NAMES, "timm/NAME"),
        "methods": (*LOSSES, *METHODS),
        "losses": tuple(LOSSES),
        "views": tuple(views.POLICIES),
    }
    if _asks_help(words):
        print(f"reglet list [{' | '.join(rooms)}]")
        return OK
    for word in words:
        if word not in rooms:
            raise ValueError(f"reglet list knows {', '.join(rooms)}; got {word!r}")
    for room in words or rooms:
        print(f"{room:<8} {', '.join(rooms[room])}")
    return OK


def _keys(command: str) -> list[str]:
    lines = []
    own = {"method", "loss", "projector", "views", "micro_batch"} if command == "train" else {"labels"}
    ordered = sorted(fields(Config), key=lambda f: (f.name not in FIRST, FIRST.index(f.name) if f.name in FIRST else 0))
    for f in ordered:
        if "help" in f.metadata and f.name not in own:
            lines.append(f"  {f'{f.name}={_text(f.default)}':<24} {f.metadata['help']}")
    return lines


FIRST = (
    "data",
    "model",
    "method",
    "loss",
    "views",
    "size",
    "out",
    "epochs",
    "batch",
    "lr",
    "seed",
    "resume",
    "init_from",
)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _asks_help(words: list[str]) -> bool:
    return any(word in ("-h", "--help", "help") for word in words)


def _fail(message: str, *, code: int = WRONG) -> int:
    print(f"reglet: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
