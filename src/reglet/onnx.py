"""An encoder as ONNX, run once in onnxruntime before anyone else runs it."""

import warnings
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from reglet.atomic import replacing
from reglet.export import TOLERANCE, ExportError, Json, load_encoder


def write_onnx(encoder: Path, file: Path) -> Json:
    """The exported encoder, or the run, in the directory `encoder` as `file`, for any number of images at a time.

    Gives how far onnxruntime's features are from torch's.
    """
    if file.suffix != ".onnx":
        raise ValueError(f"onnx= names a file that ends in .onnx, got {str(file)!r}")
    backbone, _, card = load_encoder(encoder)
    about = card["architecture"]
    x = torch.randn(3, about["in_channels"], about["size"], about["size"], generator=torch.Generator().manual_seed(0))
    with replacing(file) as fresh:
        _write(backbone, x, fresh)
        apart = _apart(backbone, x, fresh)
        if not apart <= TOLERANCE:
            raise ExportError(f"onnxruntime's features differ from torch's by {apart:.1e}, relative to the largest")
    return {"by": "onnxruntime", "largest relative difference": apart}


def _write(backbone: nn.Module, x: torch.Tensor, file: Path) -> None:
    try:
        import_module("onnxscript")  # what torch.onnx needs
    except ImportError as error:
        raise ImportError("onnx= needs onnx, onnxscript and onnxruntime: pip install 'reglet[onnx]'") from error
    many = torch.export.Dim("n", min=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch's own use of its own parts
        program = torch.onnx.export(
            backbone,
            (x,),
            dynamo=True,
            dynamic_shapes=({0: many},),
            input_names=["images"],
            output_names=["features"],
            verbose=False,
        )
    assert program is not None
    program.save(str(file), external_data=False)


@torch.no_grad()
def _apart(backbone: nn.Module, x: torch.Tensor, file: Path) -> float:
    """The largest difference over batches of two sizes, as a share of the largest feature."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    apart = 0.0
    for images in (x, x[:1]):
        ours = backbone(images)
        theirs = torch.from_numpy(session.run(None, {"images": images.numpy()})[0])
        apart = max(apart, float((ours - theirs).abs().max() / ours.abs().max().clamp_min(1e-12)))
    return apart
