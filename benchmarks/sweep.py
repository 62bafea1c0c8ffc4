"""Every loss at sizes from one end of the range to the other: nowhere slower than its formula, or than lightly.

n 32 to 4096, d 64 to 8192, v 2 to 10, K 256 to 4096.  The largest corner is left out: at n 4096, d 8192 one round of
the four losses takes minutes.  The other losses have fewer sizes.
"""

import time
from collections.abc import Iterator

import torch

from benchmarks.losses import Case, steps_of
from benchmarks.rows import Row, at_least
from benchmarks.subjects import subject
from benchmarks.timing import Clock, interleave

SECONDS = 3.0  # for one size of one loss, once there were three rounds

# (v, n, d)
SIZES = [
    (2, 32, 64),
    (2, 32, 512),
    (2, 32, 8192),
    (2, 64, 128),
    (2, 256, 64),
    (2, 256, 256),
    (2, 256, 2048),
    (2, 512, 512),
    (2, 1024, 512),
    (2, 1024, 2048),
    (2, 2048, 128),
    (2, 4096, 64),
    (2, 4096, 512),
    (4, 32, 64),
    (10, 64, 128),
    (10, 256, 512),
]
# (v, n, d, K)
SLICED = [
    (2, 32, 64, 256),
    (2, 32, 64, 4096),
    (2, 32, 8192, 256),
    (2, 256, 64, 256),
    (2, 256, 512, 1024),
    (2, 1024, 2048, 256),
    (2, 4096, 64, 256),
    (2, 4096, 64, 2048),
    (10, 32, 64, 256),
    (10, 64, 512, 4096),
    (10, 256, 256, 1024),
]
BETWEEN_SAMPLES = {
    "Barlow Twins": "BarlowTwinsLoss",
    "VICReg": "VICRegLoss",
    "NT-Xent": "NTXentLoss",
    "SMI": "SMILoss",
}

# the other losses, at fewer sizes: (v, n, d)
FAMILY_SIZES = [
    (2, 32, 64),
    (2, 256, 64),
    (2, 256, 256),
    (2, 256, 2048),
    (2, 1024, 512),
    (10, 64, 128),
]
FAMILY = {
    "KoLeo": "KoLeo",
    "MMCR": "MMCRLoss",
    "FroSSL": "FroSSLLoss",
    "EMP-SSL": "EMPSSLLoss",
    "W-MSE": "WMSELoss",
    "TiCo": "TiCoLoss",
    "DirectCLR": "DirectCLRLoss",
    "BHEP": "BHEP",
    "Radial-VCReg": "RadialVCReg",
}

# (v, n, d, K)
FAMILY_SLICED = [(2, 32, 64, 256), (2, 256, 512, 1024), (2, 4096, 64, 256), (10, 64, 512, 1024)]
SKETCHED = {"Sub-JEPA": "SubspaceSIGReg", "Rectified LpJEPA": "RDMReg"}


def cases() -> Iterator[Case]:
    for title, name in BETWEEN_SAMPLES.items():
        for v, n, d in SIZES:
            yield Case(subject(name), title, f"v {v}, n {n}, d {d}", (v, n, d))
    for title, name in FAMILY.items():
        for v, n, d in FAMILY_SIZES:
            if _takes(name, n, d):
                yield Case(subject(name), title, f"v {v}, n {n}, d {d}", (v, n, d))
    for title, name in {"VISReg": "VISRegLoss", "SIGReg": "SIGReg"}.items():
        for v, n, d, k in SLICED:
            yield Case(subject(name, slices=k), title, f"v {v}, n {n}, d {d}, K {k}", (v, n, d))
    for title, name in SKETCHED.items():
        for v, n, d, k in FAMILY_SLICED:
            yield Case(subject(name, slices=k), title, f"v {v}, n {n}, d {d}, K {k}", (v, n, d))


def _takes(name: str, n: int, d: int) -> bool:
    """Not where W-MSE's covariance is singular, nor where KoLeo's formula would hold n n d numbers of 2 GB."""
    return not (name == "WMSELoss" and n <= d) and not (name == "KoLeo" and n * n * d > 2**28)


def run(*, budget: float = 60.0, clock: Clock = time.perf_counter) -> Iterator[Row]:
    torch.manual_seed(0)
    for case in cases():
        steps = steps_of(case)
        rounds = interleave(steps, slot=0.03, least=3, budget=min(budget, SECONDS), clock=clock)
        for other in steps:
            if other != "reglet":
                ratio = rounds.ratio(other, "reglet")
                spread = {"low": ratio.low, "high": ratio.high}
                yield at_least(case.title, case.size, "times faster than", ratio.median, 1.0, against=other, **spread)
