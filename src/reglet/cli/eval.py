"""`reglet eval`"""

from pathlib import Path

from reglet.cli.loading import load
from reglet.cli.words import (
    COMPUTE,
    COMPUTE_HELP,
    ENCODERS_HELP,
    GIVEN,
    OK,
    asks_help,
    computing,
    encoders,
    several,
    sourcing,
    whole,
)

HELP = (
    """\
reglet eval ENCODER [ENCODER ...] [data=...] [probes=knn,linear] ...

  reglet eval runs/a                                   on the data of the run
  reglet eval run=runs/a data=photos/                  on other data with labels: photos/CLASS/*.jpg
  reglet eval runs/a data=x.npz train=train test=val   on parts of the data by name
  reglet eval timm/resnet18 data=photos/               released weights
  reglet eval runs/a timm/resnet18 hf/facebook/dinov2-small data=photos/,birds/
                                                       a table: encoders x sets, paired by test image; wins; cost

Computes the features of every image once.  Then trains probes on one part and tests them on the other, and describes
the features.  Prints a table, and writes eval.json in the directory of a run or an exported encoder.
For several encoders or sets, the table has accuracies, each encoder's difference from the first with an interval paired
by test image (bootstrap, McNemar; Holm over the table), wins, parameters, GFLOPs and milliseconds per image.

"""
    + ENCODERS_HELP.format(features="")
    + """
  run      an encoder, by its key
  data     as for pretrain, several with commas between them; default: the run's own, with its split
  train    part to train probes on; default: the part called train, or else four fifths of the images
  test     part to test them on; default: the part called test or val, or else the other fifth
  probes   knn       20 neighbours, weighted
           linear    SGD at 13 learning rates; a part of the training images chooses the rate
           exact     logistic regression to convergence, at 6 strengths: slower
           ridge     least squares in closed form
           mlp       three layers: minutes
           few       ten labels of each class, five draws; not in a table of several encoders
  blocks   how many last blocks of a ViT the linear probes see (1; 4 in VISReg's and SER's protocols)
  batch    images at a time (256)
  seed     of splits and probes (0)
  out      file for the numbers, instead of eval.json in the directory
"""
    + COMPUTE_HELP
)
KEYS = ("run", "data", "train", "test", "probes", "blocks", "batch", "seed", "out", *GIVEN, *COMPUTE)


def evaluate(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    given_as, given = encoders("eval", words, KEYS)
    sets = several(given.get("data", ""))
    probes = given.get("probes", "knn,linear").split(",")
    blocks, batch = whole("blocks", given, 1, least=1), whole("batch", given, 256, least=1)
    seed = whole("seed", given, 0)
    out = Path(given["out"]) if "out" in given else None
    load("reglet.evaluate")
    from reglet.evaluate.compute import compute
    from reglet.evaluate.evaluation import require_probes
    from reglet.evaluate.one import REPORT, evaluate_encoder, write_evaluation
    from reglet.evaluate.source import open_sources

    require_probes(probes)
    where = compute(**computing(given))
    opened = open_sources(given_as, **sourcing(given))
    train, test = given.get("train", ""), given.get("test", "")
    if len(opened) == 1 and len(sets) < 2:
        from reglet.cli.eval_table import show, show_encoder

        (encoder,) = opened
        pair = encoder.pair(sets[0] if sets else "", train, test)
        found = evaluate_encoder(encoder, *pair, probes=probes, blocks=blocks, batch=batch, compute=where, seed=seed)
        if out is None and encoder.folder is not None:
            out = encoder.folder / REPORT
        show_encoder(encoder)
        show(found, what="features" if encoder.rows is not None else "random weights" if encoder.random else "trained")
        if out is not None:
            write_evaluation(out, encoder, found)
        print("out=FILE would keep every number." if out is None else f"{out} has every number.")
        return OK
    if train or test:
        raise ValueError("train= and test= are for one encoder and one set; in a table the parts are chosen by rule")
    if set(probes) == {"few"}:
        raise ValueError("a table needs an answer for each test image, which few does not give: give probes=knn,linear")
    from reglet import progress
    from reglet.cli.judge_table import show as show_table
    from reglet.evaluate.judge import judge

    with progress.work("eval") as work:
        judged = judge(
            opened,
            sets,
            lambda encoder, a, b: (
                evaluate_encoder(
                    encoder, a, b, probes=probes, blocks=blocks, batch=batch, compute=where, seed=seed, beside=False
                ).right
            ),
            compute=where,
            seed=seed,
            says=work.note,
        )
    show_table(judged)
    _write(out, judged.json())
    return OK


def _write(out: Path | None, found: dict[str, object]) -> None:
    from reglet.engine.run_folder import write_json

    if out is not None:
        write_json(out, found)
    print("out=FILE would keep every number." if out is None else f"{out} has every number.")
