"""`reglet train task=NAME`, for every task but domains"""

from dataclasses import fields

from reglet.cli.words import OK, asks_help, pairs
from reglet.engine.config import typed

HELP = """\
reglet train task={name} key=value ...   {says}

  reglet train task={name} data=... sim=auto paired=true seeds=5

Finished runs stay in `out`, so that the same command goes on after an interruption and adds seeds; the weights of
each are beside its scores, as safetensors.

Keys and their defaults:"""


def train_task(words: list[str]) -> int:
    name = pairs([word for word in words if word.startswith("task=")])["task"]
    from reglet.tasks import named

    chosen = named(name)
    kind = chosen.config
    if asks_help(words):
        print(HELP.format(name=name, says=(type(chosen).__doc__ or "").strip().split("\n")[0]))
        for f in fields(kind):
            default = str(f.default).lower() if isinstance(f.default, bool) else f.default
            print(f"  {f'{f.name}={default}':<24} {f.metadata['help']}")
        return OK
    kinds = {f.name: type(f.default) for f in fields(kind)}
    given = pairs([word for word in words if not word.startswith("task=")], tuple(kinds))
    config = kind(**{key: typed(key, text, kinds[key]) for key, text in given.items()})

    from reglet.cli.task_table import show, tracked
    from reglet.tasks.run import REPORT

    show(tracked(name, chosen, config))
    print(f"{config.out}/{REPORT} has every number.")
    return OK
