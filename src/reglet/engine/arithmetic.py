"""How exactly a run computes: the precision of float32 products, and whether every sum has one order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from reglet.engine.settings import Settings


@contextmanager
def arithmetic(settings: Settings) -> Iterator[None]:
    """Set torch's switches as the settings say, and put them back afterwards.

    deterministic: what CUDA needs for the same bits twice.  Kernels that have no deterministic form raise.  cuBLAS asks
    for its workspace in the environment, and looks when it is first used.
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
