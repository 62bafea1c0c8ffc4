"""Features of every image of a data set, as a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from reglet.data import Images, load
from reglet.export import load_encoder


def embed(run: Path, spec: str, out: Path, *, split: str = "", batch: int = 256) -> tuple[int, int]:
    """Features by the encoder in `run` of the data `spec`, to a .npz or .parquet file.  Gives their shape."""
    if out.suffix not in (".npz", ".parquet"):
        raise ValueError(f"out= is a file that ends in .npz or .parquet, got {out}")
    encoder, preprocess, card = load_encoder(run)
    images = load(spec, split=split, size=card["architecture"]["size"], keep=False)  # each is seen once
    x = features(encoder, images, preprocess, batch=batch).numpy()
    columns = {"features": x}
    for key, known in (("labels", images.labels), ("domain", images.domain)):
        if known is not None:
            columns[key] = known.numpy()
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npz":
        np.savez(out, allow_pickle=False, **columns)
    else:
        _parquet(out, columns)
    return x.shape[0], x.shape[1]


@torch.no_grad()
def features(
    encoder: nn.Module, images: Images, preprocess: Callable[[Tensor], Tensor], *, batch: int = 256
) -> Float[Tensor, "n d"]:
    rows = [encoder(preprocess(images.batch(index))).float() for index in torch.arange(len(images)).split(batch)]
    return torch.cat(rows)


def _parquet(out: Path, columns: dict[str, NDArray[Any]]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "a .parquet file needs pyarrow: pip install 'reglet[parquet]'; or give out=features.npz"
        ) from error
    x = columns["features"]
    table = {"features": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])}
    pq.write_table(pa.table(table | {k: pa.array(v) for k, v in columns.items() if k != "features"}), out)
