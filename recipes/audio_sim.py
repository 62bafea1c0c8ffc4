"""rhoSIM on sounds: spoken digits and environmental sounds, four networks, with SIM and without.

Paper     Cai et al., Self Identity Mapping, table 8 (US8K, Speech Commands v2, GTZAN)
Command   python -m recipes.audio_sim
Printed   accuracy without -> with SIM in %, US8K; SCv2; GTZAN.  TDNN 94.89 -> 95.02; 97.94 -> 97.98; 71.43 -> 73.21.
          CAM++ 96.07 -> 96.34; 97.46 -> 97.58; 74.11 -> 75.89.  Res2Net 92.74 -> 93.99; 96.51 -> 96.72; 69.64 -> 70.54.
          ERes2Net 96.29 -> 96.81; 98.22 -> 98.43; 74.00 -> 77.00
Design    The networks at their small widths, lambda = 5e-3, rho = 0.2.  Digits: 320 steps of 32, the official test of
          300 clips.  ESC-10: 160 steps; seed i tests part i + 1 of five, then again from the first, so that an interval
          is over parts as well.  Five seeds, and sixty where the printed gain is within their reach.
"""

import sys
from functools import cache
from pathlib import Path

from recipes.recipe import DATA, Printed, Recipe, Scores, itself, main, train_task
from reglet.probes import linear_probe
from reglet.runs import Run
from reglet.tasks.audio import TASK
from reglet.tasks.audio.config import AudioConfig
from reglet.tasks.audio.data import Clips
from reglet.tasks.config import AUTO

FILES = {"fsdd": "fsdd_logmel.npz", "esc10": "esc10_logmel.npz"}
POOL = {"fsdd": 2, "esc10": 4}  # to 20 bands x 40 frames of 20 ms, and 16 x 49 of 100 ms
ROUNDS = {"fsdd": 2, "esc10": 1}  # times the steps: as long as more would still move the networks
MODELS = ("tdnn", "res2net", "eres2net", "campplus")  # the small ones
RAW = "raw maps"  # a linear probe of them
PARTS = 5  # of ESC-10: seed i tests part i
FOLDS = tuple(f"{sounds}, {model}" for sounds in FILES for model in MODELS)
REACH = "esc10, res2net"  # the largest printed gain
PRINTED = {  # of US8K and Speech Commands v2: environmental sounds, and words
    "tdnn": {"esc10": 0.13, "fsdd": 0.04},
    "campplus": {"esc10": 0.27, "fsdd": 0.12},
    "res2net": {"esc10": 1.25, "fsdd": 0.21},
    "eres2net": {"esc10": 0.52, "fsdd": 0.21},
}


def config_of(run: Run, folder: Path) -> AudioConfig:
    sounds, model = run.fold.split(", ")
    return AudioConfig(
        data=str(folder / FILES[sounds]),
        model=f"{model}-small",
        fold=(run.seed - 1) % PARTS + 1 if sounds == "esc10" else 0,
        pool=POOL[sounds],
        steps=ROUNDS[sounds] * run.settings["steps"],
        batch=run.settings["batch"],
        sim=run.settings["sim"],
        sim_weight=str(run.settings["weight"]),
    )


@cache
def clips(path: str, fold: int, pool: int) -> Clips:
    return TASK.load(AudioConfig(data=path, fold=fold, pool=pool))


def compute(run: Run, folder: Path) -> Scores:
    config = config_of(run, folder)
    if run.arm == RAW:
        x, y, train, test, _ = clips(config.data, config.fold, config.pool)
        x = x.flatten(1)
        return {"accuracy": 100 * linear_probe(x[train], y[train], x[test], y[test]).accuracy}
    return train_task("audio", TASK, config, clips(config.data, config.fold, config.pool), seed=run.seed)


RECIPE = Recipe(
    name="audio_sim",
    paper="rhoSIM",
    compute=compute,
    load=itself,
    data=DATA,
    files=tuple(FILES.values()),
    settings={"steps": 160, "batch": 32, "weight": 5e-3, "sim": ""},
    arms={"without": {}, "with SIM": {"sim": AUTO}, RAW: {}},
    folds=FOLDS,
    seeds=60,
    fewer={RAW: 5} | dict.fromkeys((fold for fold in FOLDS if fold != REACH), 5),
    base={"with SIM": "without"},
    reference=RAW,
    measures=("accuracy", "f1"),
    printed=tuple(
        Printed(
            f"SIM helps {model} on {sounds}", "table 8", "with SIM", "without", effect, folds=(f"{sounds}, {model}",)
        )
        for model, effects in PRINTED.items()
        for sounds, effect in effects.items()
    ),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
