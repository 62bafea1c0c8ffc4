"""`reglet embed`"""

from pathlib import Path

from reglet.cli.words import COMPUTE, COMPUTE_HELP, OK, asks_help, computing, directory, whole

HELP = (
    """\
reglet embed DIRECTORY data=... out=FILE

  run    directory of a run, or of an exported encoder
  data   as for pretrain: digits, a folder, a .npz, hf/NAME, torchvision/NAME
  split  part of the data, such as test; default: all
  out    FILE.csv, FILE.npz, or FILE.parquet where pyarrow is installed: features, and where the data have them the
         names of files, labels and domain; a file that cannot be read is named and left out
  batch  images at a time (256)
"""
    + COMPUTE_HELP
)


def embed(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    run, given = directory("embed", words, ("run", "data", "split", "out", "batch", *COMPUTE))
    if "out" not in given:
        raise ValueError("reglet embed needs out=; see reglet embed --help")
    from reglet.evaluate.embed import embed as write_features

    out = Path(given["out"])
    shape = write_features(
        run,
        given.get("data", "digits"),
        out,
        split=given.get("split", ""),
        batch=whole("batch", given, 256, least=1),
        **computing(given),
    )
    print(f"{out}: {shape[0]} images, {shape[1]} features")
    return OK
