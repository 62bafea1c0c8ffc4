"""`reglet embed`"""

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
reglet embed ENCODER [ENCODER ...] data=... out=FILE

  reglet embed runs/a data=photos/ out=features.npz
  reglet embed runs/a timm/resnet18 data=photos/,birds/ out=features/     a file for each encoder and set

"""
    + ENCODERS_HELP.format(features=" (not here: features are what is to be made)")
    + """
  run    an encoder, by its key
  data   as for pretrain: digits, a folder, a .npz, hf/NAME, torchvision/NAME; several with commas between them
  split  part of the data, such as test, or several with commas between them; default: all
  out    FILE.csv, FILE.npz, or FILE.parquet where pyarrow is installed: features and, if the data have them,
         names of files, labels, domain, and split (the part of the image).  A file that cannot be read is named and
         left out.  For several encoders or sets, a folder of files ENCODER--DATA.npz
  batch  images at a time (256)
"""
    + COMPUTE_HELP
)


def embed(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    given_as, given = encoders("embed", words, ("run", "data", "split", "out", "batch", *GIVEN, *COMPUTE))
    if "out" not in given:
        raise ValueError("reglet embed needs out=; see reglet embed --help")
    sets = several(given.get("data", "digits"))
    batch, out = whole("batch", given, 256, least=1), Path(given["out"])
    many = len(given_as) > 1 or len(sets) > 1
    if many and out.suffix:
        raise ValueError(f"out= is a folder for the files of {len(given_as)} encoders and {len(sets)} sets, got {out}")
    load("reglet.evaluate")
    from reglet.evaluate.embed import embed as write_features
    from reglet.evaluate.source import keys_for

    for run, keys in zip(given_as, keys_for(given_as, **sourcing(given)), strict=True):
        for data in sets:
            file = out / f"{_name(run)}--{_name(data)}.npz" if many else out
            shape = write_features(
                run,
                data,
                file,
                split=given.get("split", ""),
                batch=batch,
                **keys,
                **computing(given),
            )
            print(f"{file}: {shape[0]} images, {shape[1]} features")
    return OK


def _name(given: str) -> str:
    """As a part of a file name.

    >>> _name("timm/resnet18"), _name("../photos/")
    ('timm-resnet18', 'photos')
    """
    return "-".join(part for part in Path(given).parts if part not in ("/", "..")).replace(":", "-")
