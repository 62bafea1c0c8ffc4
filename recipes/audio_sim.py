"""rhoSIM on environmental sounds: four networks, with SIM and without.

Paper     Cai et al., Self Identity Mapping, table 8 (US8K, Speech Commands v2, GTZAN)
Command   python -m recipes.audio_sim
Printed   accuracy without -> with SIM in %, US8K; SCv2; GTZAN.  TDNN 94.89 -> 95.02; 97.94 -> 97.98; 71.43 -> 73.21.
          CAM++ 96.07 -> 96.34; 97.46 -> 97.58; 74.11 -> 75.89.  Res2Net 92.74 -> 93.99; 96.51 -> 96.72; 69.64 -> 70.54.
          ERes2Net 96.29 -> 96.81; 98.22 -> 98.43; 74.00 -> 77.00
Design    ESC-10, compared with what is printed for US8K.  The networks at their small widths, 160 steps of 32, lambda =
          5e-3, rho = 0.2.  Seed i tests part i of five, so that an interval is over parts as well.
Measured  2026-11-18, seeds 1 to 5.  Figures, commits and minutes: recipes/summaries/audio_sim.json.
Found     No verdict.  TDNN has settled, and its five parts differ too much to tell 0.13.  Twice the steps move the
          three others by 2.8 to 4.8 points, so at 160 steps a faster start looks like a gain: CAM++ has +2.5 +- 1.5
          with SIM.  An older design of 80 steps told nothing apart either, on ESC-10 and on spoken digits.
"""

import sys
from functools import cache
from pathlib import Path

from recipes.recipe import DATA, Printed, Recipe, Scores, as_the_authors, itself, main, train_task
from reglet.probes import linear_probe
from reglet.runs import Run
from reglet.tasks.audio import TASK
from reglet.tasks.audio.config import AudioConfig
from reglet.tasks.audio.data import Clips
from reglet.tasks.config import AUTO

FILE, POOL = "esc10_logmel.npz", 4  # to 16 bands x 49 frames of 100 ms
RAW = "raw maps"  # a linear probe of them
PARTS = 5  # seed i tests part i
PRINTED = {"tdnn": 0.13, "campplus": 0.27, "res2net": 1.25, "eres2net": 0.52}  # of US8K and full-size networks


def config_of(run: Run, folder: Path) -> AudioConfig:
    """The fold of a run is a network; that of the config, the part that tests."""
    return AudioConfig(
        data=str(folder / FILE),
        model=f"{run.fold}-small",
        fold=(run.seed - 1) % PARTS + 1,
        pool=POOL,
        steps=run.settings["steps"],
        batch=run.settings["batch"],
        sim=run.settings["sim"],
        options={**as_the_authors(run.settings["sim"])},
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
    files=(FILE,),
    settings={"steps": 160, "batch": 32, "weight": 5e-3, "sim": ""},
    arms={"without": {}, "with SIM": {"sim": AUTO}, RAW: {}},
    folds=tuple(PRINTED),
    base={"with SIM": "without"},
    reference=RAW,
    measures=("accuracy", "f1"),
    printed=tuple(
        Printed(
            f"SIM helps {model} on ESC-10 (printed for US8K)", "table 8", "with SIM", "without", effect, folds=(model,)
        )
        for model, effect in PRINTED.items()
    ),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
