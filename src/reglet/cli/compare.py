"""`reglet compare`"""

from pathlib import Path
from typing import Any

from reglet.cli.run import stored_values
from reglet.cli.words import OK, asks_help, pairs
from reglet.engine.config import Config, from_flat, parse

HELP = """\
reglet compare base=WORDS candidate=WORDS [seeds=5] [out=runs/compare] key=value ...

  reglet compare base=method=vicreg candidate=method=visreg epochs=20
  reglet compare base=runs/a candidate=runs/a,loss.lam=0.6 seeds=8
  reglet compare command=train data=photos/ base=model=resnet18 candidate=model=resnet18,sim=layer*.*

Trains both arms with the same seeds, data order and budget.  Says whether the candidate helps, hurts, or cannot be told
apart with this number of seeds, and what it costs.  Finished runs in `out` are not repeated.

  base, candidate   key=value words of reglet pretrain or train, with commas between them; a run's directory or its
                    config.json may come first.  All other keys hold for both arms
  seeds             how many; below 4 nothing can be decided
  jobs              runs at a time, each in a process of one thread; by default 1
  robust            false: leave out the accuracy under corruption
  out               where the runs and compare.json go
"""
OWN = ("base", "candidate", "seeds", "jobs", "robust", "out")


def compare(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    given = pairs(words)
    for key in ("base", "candidate"):
        if key not in given:
            raise ValueError(f"reglet compare needs {key}=; see reglet compare --help")
    shared = {key: parse(key, text) for key, text in given.items() if key not in OWN}
    if "seed" in shared:
        raise ValueError("reglet compare runs seeds 0, 1, ...: give seeds=, not seed=")
    base, candidate = (arm(given[key], shared) for key in ("base", "candidate"))
    robust = given.get("robust", "true").lower()
    if robust not in ("true", "false") or not (given.get("seeds", "5") + given.get("jobs", "1")).isdigit():
        got = f"{robust!r}, {given.get('seeds')!r} and {given.get('jobs')!r}"
        raise ValueError(f"robust is true or false, seeds a number and jobs a number, got {got}")
    from reglet.cli.compare_table import show
    from reglet.compare import REPORT
    from reglet.compare import compare as run

    out = Path(given.get("out", "runs/compare"))
    seeds, jobs = int(given.get("seeds", 5)), int(given.get("jobs", 1))
    result = run(base, candidate, out, seeds=seeds, robust=robust == "true", jobs=jobs)
    show(result)
    print(f"{out / REPORT} has every number.")
    return OK


def arm(text: str, shared: dict[str, Any]) -> Config:
    """The configuration that `text`, the words after base= or candidate=, means."""
    values: dict[str, Any] = {}
    words = [word for word in text.split(",") if word]
    if words and "=" not in words[0]:
        path = Path(words.pop(0))
        values = stored_values(path if path.suffix == ".json" else path / "config.json")
        for key in ("out", "seed", "resume"):
            values.pop(key, None)
    values |= shared
    values |= {key: parse(key, value) for key, value in pairs(words).items()}
    for key in ("out", "seed", "resume", "devices", "nodes"):
        if key in values and values[key] not in (1, False):
            raise ValueError(f"{key}= is not an arm's own: reglet compare sets it")
    return from_flat(values)
