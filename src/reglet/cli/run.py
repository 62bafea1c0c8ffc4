"""`reglet pretrain` and `reglet train`"""

from dataclasses import fields
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any

from reglet.cli.export import show_card
from reglet.cli.nested import nested
from reglet.cli.task import is_task, train_task
from reglet.cli.words import INTERRUPTED, OK, asks_help, data_by_position, pairs
from reglet.engine.build import makers
from reglet.engine.config import ADAPT, COMMANDS, Config, from_flat, parse
from reglet.engine.run_folder import CHECKPOINT, CONFIG, DERIVED, RunError, free_folder, read_config
from reglet.engine.start import model_of

if TYPE_CHECKING:
    from reglet.train import Result

Json = dict[str, Any]
ENOUGH = 5000  # images of each part, for the table at the end
PRETRAIN = """\
reglet pretrain key=value ...         learn an encoder from images without labels
reglet pretrain runs/a/config.json    repeat a run, in a new directory; keys that follow change it

  reglet pretrain                                              the built-in digits, in minutes on a laptop
  reglet pretrain data=photos/ model=vit_tiny out=runs/a
  reglet pretrain data=photos/ model=vit_small model.cls_layer=3 method=moco equivariant=ser equivariant.layer=3
  reglet pretrain out=runs/a resume=true                       continue where it was stopped or killed
  reglet pretrain data=photos/ init_from=runs/a out=runs/b     a new run from the weights of another

In `out`: config.json (everything needed to repeat the run), metrics.jsonl, checkpoint.safetensors, and at the end
encoder.safetensors with card.json, which says how to load it without reglet.
Arguments of a part are given with its name: loss.slices=1024, model.patch=4, method.momentum=0.99, views.n_local=2.
Losses on blocks (see reglet list attach): attach.0.where=blocks.* attach.0.loss=sigreg attach.0.weight=0.01, and
attach.1.where=blocks.3 attach.1.to=blocks.9 attach.1.loss=cosine beside it.
"""
TRAIN = """\
reglet train key=value ...            learn a classifier from images with labels: a folder class/, a .npz with labels

  reglet train data=photos/ model=resnet18 out=runs/b
  reglet train data=photos/ model=resnet18 init_from=runs/a labels=0.1 out=runs/c      few labels, pretrained weights
  reglet train data=photos/ model=resnet18 long_tail=100 latent=latentdr lr=5e-4       degrade and restore latents
  reglet train task=domains data=pacs/ loss=irm      leave each domain out in turn; see reglet train task=domains --help
  reglet train task=audio|segmentation|dense|anomaly|few-shot|translation|series-ssl ...   other data; each has a --help
"""
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


def pretrain(words: list[str]) -> int:
    return _run("pretrain", words)


def train(words: list[str]) -> int:
    return train_task(words) if is_task(words) else _run("train", words)


def _run(command: str, words: list[str]) -> int:
    if asks_help(words):
        print(PRETRAIN if command == "pretrain" else TRAIN)
        show_keys(command, words)
        return OK
    from reglet.train import run

    config = configuration(command, words)
    result = run(config)
    if not result.finished:
        print(f"stopped after step {result.steps}; resume: reglet {command} out={result.out} resume=true")
        return INTERRUPTED if result.stopped_by == SIGINT else OK
    from reglet.dist import rank

    if rank() == 0:
        said = {"knn": "online kNN", "accuracy": "the classifier's own accuracy"}
        numbers = [f"{said[key]} {value:.1%}" for key, value in result.metrics.items() if key in said]
        print(", ".join([f"{result.out}: {result.steps} steps", *numbers]))
        _show_scores(result)
        show_card(result.out)
    return OK


def show_keys(command: str, words: list[str]) -> None:
    """Of `--help`: every key with its default, and those of the parts that the words name."""
    print("Keys and their defaults:")
    print("\n".join(_keys(command)))
    print("\nKeys of a part, for the words given (method=, loss=, latent= choose it):")
    print("\n".join(nested(makers(configuration(command, [word for word in words if not asks_help([word])])))))


def _show_scores(result: "Result") -> None:
    """Accuracies with what they are without training beside them; nothing of a trial, or where there are no labels."""
    from reglet.cli.eval_table import show_scores
    from reglet.diagnostics.diseases import SHORT
    from reglet.evaluate import evaluate_run

    data = read_config(result.out / CONFIG)["resolved"]["data"]
    if result.steps < SHORT or not data["classes"] or "test" not in data:
        return
    show_scores(evaluate_run(result.out, probes=["knn"], most=ENOUGH))
    print(f"\nreglet eval {result.out} adds a linear probe, the accuracy of each class and what it is taken for.\n")


def configuration(command: str, words: list[str]) -> Config:
    """Words of the command line over the stored configuration, where one is named or resumed."""
    words = data_by_position(command, words)
    files = [word for word in words if "=" not in word]
    given = {key: parse(key, text) for key, text in pairs([word for word in words if "=" in word]).items()}
    if len(files) > 1:
        raise ValueError(f"one config.json at most, got {' '.join(files)}")
    stored: Json = {}
    if files:
        if given.get("resume"):
            raise ValueError("a config.json repeats a run from its start; to continue one give out=... resume=true")
        stored = stored_values(Path(files[0]))
        given.setdefault("out", free_folder(Path(stored["out"])))
        stored["resume"] = False
    elif given.get("resume"):
        out = Path(given.get("out", Config.out))
        if not (out / CONFIG).exists():
            raise RunError(f"there is no run to resume in {out}: {CONFIG} is missing")
        stored = stored_values(out / CONFIG)
        if given.get("init_from"):
            raise ValueError("resume continues the run in `out`, init_from starts a new one from weights: give one")
        if (out / CHECKPOINT).exists():
            stored["init_from"] = ""  # its weights are in the checkpoint
    elif command == "adapt":
        stored = {**ADAPT, **({} if "model" in given else model_of(str(given.get("init_from", ""))))}
    values = {**stored, "command": stored.get("command", command), **given}
    if values["command"] != command:
        raise ValueError(f"that run was made by reglet {values['command']}, not by reglet {command}")
    return from_flat(values)


def stored_values(path: Path) -> Json:
    values = {key: value for key, value in read_config(path).items() if key not in DERIVED}
    if values.get("command") not in COMMANDS:
        raise ValueError(f"{path} is of a run that was made in Python, not by names")
    return values


def _keys(command: str) -> list[str]:
    lines = []
    own = (
        {"method", "loss", "projector", "views", "micro_batch", "equivariant"}
        if command == "train"
        else {"labels", "latent"}
    )
    own |= set() if command == "adapt" else {"require"}
    ordered = sorted(fields(Config), key=lambda f: (f.name not in FIRST, FIRST.index(f.name) if f.name in FIRST else 0))
    for f in ordered:
        if "help" in f.metadata and f.name not in own:
            default = ADAPT.get(f.name, f.default) if command == "adapt" else f.default
            lines.append(f"  {f'{f.name}={_text(default)}':<24} {f.metadata['help']}")
    return lines


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
