"""Words of a command line, and the codes it ends with."""

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

OK, WRONG, NOT_FINITE, INTERRUPTED = 0, 2, 3, 130


def plain(words: Sequence[str]) -> list[str]:
    """Words in the forms of other programs as key=value.

    >>> plain(["pretrain", "--data", "photos", "--resume", "--lr=1", "out=a", "--help"])
    ['pretrain', 'data=photos', 'resume=true', 'lr=1', 'out=a', '--help']
    """
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word in ("--help", "--version"):
            found.append(word)
        elif "=" in word:
            found.append(word[2:])
        elif rest and not rest[0].startswith("-") and "=" not in rest[0]:
            found.append(f"{word[2:]}={rest.pop(0)}")
        else:
            found.append(f"{word[2:]}=true")
    return found


def pairs(words: list[str], allowed: Sequence[str] | None = None) -> dict[str, str]:
    """key=value words as a dict; with `allowed`, of those keys alone."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"arguments are key=value, got {word!r}")
        if key in found:
            raise ValueError(f"{key}= is given twice")
        if allowed is not None and key not in allowed:
            close = get_close_matches(key, allowed, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]}=?" if close else ""
            raise ValueError(f"unknown key {key!r}.{hint} There are {', '.join(allowed)}")
        found[key] = text
    return found


def data_by_position(command: str, words: list[str]) -> list[str]:
    """`pretrain photos/` as `pretrain data=photos/`.  A config.json, or a directory that has one, is no data.

    >>> data_by_position("pretrain", ["photos/", "model=vit_tiny"])
    ['model=vit_tiny', 'data=photos/']
    """
    found = [word for word in words if "=" in word]
    for word in (word for word in words if "=" not in word):
        if (Path(word) / "config.json").is_file():
            found.append(str(Path(word) / "config.json"))
        elif word.endswith(".json") or asks_help([word]):
            found.append(word)
        elif any(other.startswith("data=") for other in found):
            raise ValueError(f"the data are given twice; reglet {command} takes them as data={word} or as {word}")
        else:
            found.append(f"data={word}")
    return found


def directory(command: str, words: list[str], keys: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """The one directory that a command is about, given by itself or as run=, and its other words."""
    places = [word for word in words if "=" not in word]
    given = pairs([word for word in words if "=" in word], keys)
    if len(places) + ("run" in given) != 1:
        raise ValueError(f"reglet {command} needs one directory, such as runs/a; see reglet {command} --help")
    return Path(given["run"] if "run" in given else places[0]), given


def encoders(command: str, words: list[str], keys: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The encoders that a command is about, given by themselves or one as run=, and its other words.

    >>> encoders("eval", ["runs/a", "timm/resnet18", "data=digits"], ("data",))
    (['runs/a', 'timm/resnet18'], {'data': 'digits'})
    """
    found = [word for word in words if "=" not in word]
    given = pairs([word for word in words if "=" in word], keys)
    found += [given["run"]] if "run" in given else []
    if not found:
        raise ValueError(f"reglet {command} needs an encoder, such as runs/a or timm/NAME; see reglet {command} --help")
    return found, given


def several(text: str) -> list[str]:
    """Data sets with commas between them; a path that has a comma itself is one.

    >>> several("digits,photos/"), several("")
    (['digits', 'photos/'], [])
    """
    if "," not in text or Path(text).exists():
        return [text] if text else []
    if not all(parts := text.split(",")):
        raise ValueError(f"data sets have commas between them, got {text!r}")
    return parts


def yes(key: str, given: Mapping[str, str], *, default: bool) -> bool:
    """true or false."""
    text = given.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"{key} is true or false, got {text!r}")
    return text == "true"


GIVEN = ("pretrained", "size")
ENCODERS_HELP = """\
ENCODER is the directory of a run or of an exported encoder; timm/NAME; hf/NAME, or a folder that transformers or timm
saved; package.module:callable, a network or a function without arguments that returns a network or (network,
preprocess); or a file of features, .npz or .parquet, as reglet embed writes it{features}.
Images are prepared as the model's own configuration says: timm's, the image processor's, the card's.

  pretrained  false takes timm/NAME and hf/NAME with random weights (true)
  size        side of the images, for encoders not made by reglet; default: as their configuration says
"""


def sourcing(given: Mapping[str, str]) -> dict[str, Any]:
    """The keys of GIVEN, as `open_source` takes them."""
    return {"pretrained": yes("pretrained", given, default=True), "size": whole("size", given, 0)}


def whole(key: str, given: Mapping[str, str], default: int, *, least: int = 0) -> int:
    """The number that `key` was given, or its default."""
    text = given.get(key, str(default))
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{key} is a whole number, at least {least}; got {text!r}")
    return int(text)


COMPUTE = ("accelerator", "devices", "precision")
COMPUTE_HELP = """\
  accelerator  auto, cpu, cuda or mps      devices  GPUs that take turns (1)
  precision    of the network: 32-true, bf16-mixed, 16-mixed or bf16-true
"""


def computing(given: Mapping[str, str]) -> dict[str, Any]:
    """The keys of COMPUTE, as everything that runs an encoder takes them."""
    named = {key: given[key] for key in ("accelerator", "precision") if key in given}
    return {**named, "devices": whole("devices", given, 1, least=1)}


def asks_help(words: list[str]) -> bool:
    return any(word in ("-h", "--help", "help") for word in words)


def fail(message: str, *, code: int = WRONG) -> int:
    print(f"reglet: {message}", file=sys.stderr)
    return code
