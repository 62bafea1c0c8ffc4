"""`reglet adapt`"""

from pathlib import Path
from signal import SIGINT

from reglet.cli.words import INTERRUPTED, OK, asks_help

WORSE = 4  # the exit code of a verdict that is not what was required
HELP = """\
reglet adapt key=value ...            continue from weights that somebody trained, on images of your own

  reglet adapt data=photos/ model=timm/NAME pretrained=true method=visreg out=runs/a
  reglet adapt data=photos/ init_from=runs/earlier preserve=features,gram out=runs/b    hold on to what it knew
  reglet adapt data=photos/ model=hf/NAME_OR_FOLDER pretrained=true lora=8 out=runs/c    train low-rank updates only
  reglet adapt data=photos/ init_from=encoder.safetensors model=vit_small last_blocks=2 layer_decay=0.8 heads_first=0.1
  reglet adapt data=photos/ init_from=runs/earlier keep_best=rankme patience=5 require=better    for CI

All keys of reglet pretrain, and:
  where it starts    pretrained=true with model=timm/NAME or hf/NAME, or init_from= a file, a run, hf/NAME, or a folder
                     that transformers saved.  model= may be left out if init_from= knows it.
  which weights      all, last_blocks=n or lora=rank (merged on export); layer_decay= for smaller rates in earlier
                     blocks; heads_first= steps in which only the new heads learn.
  what is kept       preserve= features (of the start), class (token), gram (matrix of tokens), l2sp (distance of the
                     weights); preserve.weight=share:0.2 (of the gradient), a number or a schedule, or for one alone
                     preserve.gram.weight=1; preserve.distance=cosine or l2; preserve.block= if not the last.
  which checkpoint   the last; keep_best= rankme, lidar, alphareq (no labels needed) or knn keeps the best one in best/,
                     and patience= stops early.

At the end it compares start and end on the same test images: linear probe, kNN, few labels, kNN under corruptions, and
rank, each with an interval paired by image.  The verdict is better, worse, mixed or cannot be told; adapt.json has the
numbers.  With keep_best= the best weights are judged.  The intervals say what other test images would change.  Another
training seed may change more: reglet compare measures that.

Exit code: 0 if no score is worse, 4 if one is.  With require=better: 0 if a score is better and none is worse,
otherwise 4.  Without labels there is no verdict: 0, and require=better is refused.
"""


def adapt(words: list[str]) -> int:
    from reglet.cli.run import configuration, show_keys

    if asks_help(words):
        print(HELP)
        show_keys("adapt", words)
        return OK
    from reglet.dist import rank
    from reglet.train import run

    config = configuration("adapt", words)
    result = run(config)
    if not result.finished:
        print(f"stopped after step {result.steps}; resume: reglet adapt out={result.out} resume=true")
        return INTERRUPTED if result.stopped_by == SIGINT else OK
    if rank() != 0:
        return OK
    from reglet.cli.adapt_table import show
    from reglet.cli.export import show_card
    from reglet.evaluate.adapted import judge_adapted

    print(f"{result.out}: {result.steps} steps")
    found = judge_adapted(
        Path(result.out), which="best" if config.keep_best else "last", accelerator=config.accelerator
    )
    show(found, Path(result.out))
    show_card(result.out / "best" if config.keep_best else result.out)
    return OK if found.passes(config.require) else WORSE
