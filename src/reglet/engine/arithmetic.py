"""The precision of float32 products, and deterministic sums."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from reglet.engine.settings import Settings


@contextmanager
def arithmetic(settings: Settings) -> Iterator[None]:
    """Set torch's switches as the settings say, and restore them afterwards.

    deterministic: what CUDA needs to give the same bits each time.  Kernels without a deterministic form raise.  cuBLAS
    reads its workspace from the environment when it is first used.
    """
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    strict, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.set_float32_matmul_precision(settings.matmul_precision)
        if settings.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.backends.cudnn.benchmark = False
            torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
        torch.use_deterministic_algorithms(strict, warn_only=warns)
