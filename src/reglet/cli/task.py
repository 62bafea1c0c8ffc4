"""`reglet train task=NAME`"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from reglet.cli.words import INTERRUPTED, OK, asks_help, data_by_position, pairs
from reglet.engine.config import from_flat, parse
from reglet.engine.run_folder import CONFIG, DERIVED, RunError, free_folder, read_config

HELP = """\
reglet train task={name} key=value ...   {says}

  reglet train task={name} data=... sim=auto paired=true seeds=5
  reglet train runs/a/config.json          repeat a command, in a new directory; keys that follow change it

{more}
Finished runs stay in `out`.  So the same command continues after an interruption, even in the middle of a run, and can
add seeds.  runs/KEY has for each run metrics.jsonl, the checkpoint, and the weights as network.safetensors.

Keys and their defaults:"""


def train_task(words: list[str]) -> int:
    """The words after `reglet train`, of which one is task=NAME or the config.json of a task."""
    name, values = given(words)
    from reglet.tasks import named

    task = named(name)
    if asks_help(words):
        lines = [line.strip() for line in (type(task).__doc__ or "").strip().splitlines()]
        print(HELP.format(name=name, says=lines[0], more="\n".join(lines[2:]) + "\n" if lines[2:] else ""))
        print("\n".join(keys(task.config)))
        from reglet.blocks import SIM
        from reglet.cli.nested import nested
        from reglet.engine.build import LATENT

        chosen = {"latent": LATENT[values["latent"]]} if values.get("latent") in LATENT else {}
        print("\nKeys of a part:\n" + "\n".join(nested({"sim": SIM, **chosen})))
        return OK
    kind = task.config
    config = from_flat({key: parse(key, v, kind) if isinstance(v, str) else v for key, v in values.items()}, kind)

    from reglet.dist import rank
    from reglet.tasks.run import REPORT, StoppedError, run

    if config.resume and not (Path(config.out) / CONFIG).exists():
        raise RunError(f"there is no run to resume in {config.out}: {CONFIG} is missing")
    config = replace(config, resume=False)  # every run of a task goes on by itself
    try:
        report = run(name, task, config)
    except StoppedError as stopped:
        print(stopped)
        return INTERRUPTED
    if rank() == 0:
        from reglet.cli.task_table import show

        show(report)
        print(f"{config.out}/{REPORT} has every number.")
    return OK


def given(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The task, and the values of its keys: as text where they are words, else as they were stored."""
    words = data_by_position("train", words)
    files = [word for word in words if "=" not in word and not asks_help([word])]
    named = pairs([word for word in words if "=" in word])
    stored: dict[str, Any] = {}
    if files:
        if len(files) > 1:
            raise ValueError(f"one config.json at most, got {' '.join(files)}")
        stored = {key: value for key, value in read_config(Path(files[0])).items() if key not in (*DERIVED, "command")}
        named.setdefault("out", free_folder(Path(stored["out"])))
        stored["resume"] = False
    name = named.pop("task", stored.pop("task", ""))
    return name, {**stored, **named}


def is_task(words: list[str]) -> bool:
    """Whether `reglet train` is asked for a task, by name or by the config.json of one."""
    if any(word.startswith("task=") for word in words):
        return True
    files = [Path(word) for word in words if word.endswith(".json") and "=" not in word]
    return any(file.is_file() and "task" in read_config(file) for file in files)


def keys(kind: type[Any]) -> list[str]:
    """A line for each key: what is the task's own first, then what every run has."""
    from reglet.engine.settings import Settings

    common = {f.name for f in fields(Settings)}
    lines = []
    for f in sorted(fields(kind), key=lambda f: f.name in common):
        if "help" in f.metadata:
            default = str(f.default).lower() if isinstance(f.default, bool) else f.default
            lines.append(f"  {f'{f.name}={default}':<28} {f.metadata['help']}")
    return lines
