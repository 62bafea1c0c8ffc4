"""`reglet eval`"""

from pathlib import Path

from reglet.cli.words import COMPUTE, COMPUTE_HELP, OK, asks_help, computing, directory, whole

HELP = (
    """\
reglet eval DIRECTORY [data=...] [probes=knn,linear] ...

  reglet eval runs/a                                   on the data of the run
  reglet eval run=runs/a data=photos/                  on other data with labels: photos/CLASS/*.jpg
  reglet eval runs/a data=x.npz train=train test=val   on parts of the data by name

Features of every image once; then probes, trained on the one part and tested on the other, and what the features are
like.  A table, and eval.json in the directory.

  run      directory of a run, or of an exported encoder
  data     as for pretrain; default: the run's own, cut as it was
  train    part to train probes on; default: the one that is called so, or else four fifths of the images
  test     part to test them on; default: the one that is called test or val, or else the other fifth
  probes   knn       20 neighbours, weighted
           linear    SGD at 13 learning rates, of which one is chosen on a part of the training images
           exact     logistic regression to convergence, at 6 strengths: slower
           ridge     least squares in closed form
           mlp       three layers: minutes
           few       ten labels of each class, five draws
  blocks   of a ViT, how many last ones the linear probes see (1; 4 in VISReg's and SER's protocols)
  batch    images at a time (256)
  seed     of splits and probes (0)
  out      file for the numbers, instead of eval.json in the directory
"""
    + COMPUTE_HELP
)
KEYS = ("run", "data", "train", "test", "probes", "blocks", "batch", "seed", "out", *COMPUTE)


def evaluate(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    run, given = directory("eval", words, KEYS)
    from reglet.cli.eval_table import show
    from reglet.evaluate import evaluate_run
    from reglet.evaluate.run import REPORT

    out = Path(given["out"]) if "out" in given else run / REPORT
    found = evaluate_run(
        run,
        data=given.get("data", ""),
        train=given.get("train", ""),
        test=given.get("test", ""),
        probes=given.get("probes", "knn,linear").split(","),
        blocks=whole("blocks", given, 1, least=1),
        batch=whole("batch", given, 256, least=1),
        **computing(given),
        seed=whole("seed", given, 0),
        out=out,
    )
    show(found)
    print(f"{out} has every number.")
    return OK
