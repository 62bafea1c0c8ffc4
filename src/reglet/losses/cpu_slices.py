"""Sliced losses on the CPU, with threads of our own and a vectorised sort.  Measured gain: docs/speed.md, "losses".

The formulas stay the same, and other devices do not use this file.  Where the speed comes from:

- Threads of our own.  torch splits each operation over its threads and waits, but draws and sorts on one thread.
  Slices are independent, so here each thread takes its own slices through all operations.
- A vectorised sort.  numpy sorts 64-bit numbers 20 to 50 times faster than torch sorts with indices.
- Ten times fewer sines and cosines for SIGReg, by angle addition.
- The gradient overwrites the projections, in pieces that stay in the cache.
"""

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from threading import Barrier
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet.losses.epps_pulley import EppsPulley
from reglet.losses.slices import BLOCK, Directions
from reglet.losses.wasserstein import ToQuantiles, ToSamples
from reglet.threads import single_threads

T = TypeVar("T")

MOST = 16  # threads: more do not help, because Python starts their operations one at a time
WORTHWHILE = 1 << 18  # projections: with fewer, waiting for threads costs more than they save
CHUNK = 1 << 17  # projections of one matrix product, but at least a block of directions
PIECE = 1 << 15  # projections that a loss works on at a time: SIGReg then needs 2 MB of scratch for each thread


@runtime_checkable
class Kernel(Protocol):
    """A one-dimensional loss on pieces of shape (k, v, n), with its own scratch memory.

    A call takes `scale` times the projections.  It returns the sum of the loss over the k slices, and overwrites the
    projections with the gradient divided by `factor`.
    """

    scale: float
    factor: float

    def __call__(self, p: Float[Tensor, "k v n"]) -> Tensor: ...


def serves(z: Tensor, loss: object) -> bool:
    """Whether this file computes the loss.  Not under a mode that watches operations, such as a FLOP counter."""
    return z.device.type == "cpu" and type(loss) in KERNELS and torch._C._len_torch_dispatch_stack() == 0


def value_and_gradient(z: Float[Tensor, "v n d"], directions: Directions, loss: object) -> tuple[Tensor, Tensor]:
    """sum_k l(z w_k) and its gradient."""
    v, n, d = z.shape
    count = threads() if directions.count * v * n >= WORTHWHILE else 1
    chunk = max(BLOCK, CHUNK // (v * n))
    # Large memory is made here, because glibc keeps for a thread what that thread frees.
    grads = z.new_empty(count, v * n, d)
    projections = z.new_empty(count, -(-min(chunk, directions.count) // BLOCK) * BLOCK, v * n)

    def work(own: int, of: int) -> tuple[Tensor, Tensor]:
        some = directions.chunks(chunk, own, of)
        return _of_one_thread(z, some, loss, grads[own].zero_(), projections[own])

    value, grad = (sum(every[1:], every[0]) for every in zip(*on_threads(work, count), strict=True))
    return value.to(z.dtype), grad.view_as(z)


def _of_one_thread(
    z: Float[Tensor, "v n d"],
    chunks: Iterator[Float[Tensor, "k d"]],
    loss: object,
    grad: Float[Tensor, "vn d"],
    memory: Float[Tensor, "most vn"],
) -> tuple[Tensor, Float[Tensor, "vn d"]]:
    """The slices of one thread, whose gradient is added to `grad`; the projections of a chunk are put into `memory`.

    Views are made once, before the loop: every call of torch, even one that makes a view, needs Python's lock, for
    which threads wait.
    """
    v, n, d = z.shape
    columns = z.reshape(v * n, d).T
    piece = max(1, PIECE // (v * n))
    values = [z.new_zeros((), dtype=torch.float64)]  # a thread may have no slices
    p, work = memory[:0], []
    for w in chunks:
        if len(p) != len(w):  # the first chunk, and a last one that is shorter
            p = memory[: len(w)]
            slope, work = p.T, _pieces(loss, p.view(-1, v, n), piece)
            scale, factor = work[0][0].scale, work[0][0].factor
        torch.addmm(p, w, columns, beta=0, alpha=scale, out=p)
        values += [kernel(part) for kernel, part in work]
        grad.addmm_(slope, w, alpha=factor)
    return torch.stack([value.double() for value in values]).sum(), grad


def _pieces(loss: object, p: Float[Tensor, "k v n"], size: int) -> list[tuple[Kernel, Float[Tensor, "_ v n"]]]:
    """The projections in pieces, each with the kernel for its shape."""
    kernels: dict[int, Kernel] = {}
    parts = p.split(size)
    for part in parts:
        if len(part) not in kernels:
            kernels[len(part)] = KERNELS[type(loss)](loss, part)
    return [(kernels[len(part)], part) for part in parts]


# Wasserstein


class _ToQuantiles:
    """sum_k mean_{v,i} (p_(i) - q_i)^2, with gradient 2 (p_i - q_rank(i)) / (v n).

    The projections are not sorted.  One scatter sends each quantile to the sample of its rank.
    """

    scale = 1.0

    def __init__(self, loss: ToQuantiles, like: Float[Tensor, "k v n"]) -> None:
        _, v, n = like.shape
        self.q, self.target, self.order = loss.q.expand_as(like), torch.empty_like(like), _order(like)
        self.factor = 2 / (v * n)

    def __call__(self, p: Float[Tensor, "k v n"]) -> Tensor:
        gaps = p.sub_(self.target.scatter_(-1, self.order(p), self.q)).view(-1)
        return torch.dot(gaps, gaps) * (self.factor / 2)


class _ToSamples:
    """sum_k mean_{v,i} (p_(i) - x_(i))^2, where x is the last view: its sorted values go to the samples of their rank.

    x has no gradient: zeros.
    """

    scale = 1.0

    def __init__(self, loss: ToSamples, like: Float[Tensor, "k v1 n"]) -> None:
        views = like[:, :-1]
        self.target, self.order = torch.empty_like(views), _order(views)
        self.factor = 2 / views[0].numel()

    def __call__(self, p: Float[Tensor, "k v1 n"]) -> Tensor:
        views, x = p[:, :-1], p[:, -1:]
        x.numpy().sort(axis=-1)
        views.sub_(self.target.scatter_(-1, self.order(views), x.expand_as(views)))
        x.zero_()
        gaps = p.view(-1)
        return torch.dot(gaps, gaps) * (self.factor / 2)


def _order(like: Float[Tensor, "k v n"]) -> Callable[[Tensor], Tensor]:
    """argsort along the last axis.  Equal values come in any order."""
    if like.dtype == torch.float32:
        return _TaggedSort(like)
    return lambda p: torch.from_numpy(np.argsort(p.numpy(), axis=-1))


class _TaggedSort:
    """argsort of float32 by one sort of 64-bit keys: the value above, the index in the lower 30 bits.

    A key is the bits of the float32, shifted to the left.  Read as float64, keys have the order of the values, because
    both formats are sign, exponent, fraction.  The shift copies the sign into bits 62 and 61 as well.  Flipping bit 61
    then makes the exponent 0x200 to 0x3FF for positive and 0x400 to 0x5FF for negative values.  So no key is a
    denormal, infinity or NaN of float64: no key is flushed to zero, and no index is lost.
    """

    SHIFT = 30

    def __init__(self, like: Float[Tensor, "k v n"]) -> None:
        self.tag = torch.arange(like.shape[-1], device=like.device) + (1 << 61)
        self.key = torch.empty_like(like, dtype=torch.int64)
        self.sortable = self.key.view(torch.float64).numpy()

    def __call__(self, p: Float[Tensor, "k v n"]) -> Int[Tensor, "k v n"]:
        self.key.copy_(p.view(torch.int32)).bitwise_left_shift_(self.SHIFT).bitwise_xor_(self.tag)
        self.sortable.sort(axis=-1)
        return self.key.bitwise_and_((1 << self.SHIFT) - 1)


# Epps-Pulley


class _EppsPulley:
    """sum_k mean_v T(p_kv) and its gradient.

    The knots are equidistant, so with x = dt p we need cos(k x) and sin(k x) for k = 0..16.  Write k = m a + b with
    |b| <= h and m = 2h + 1.  By angle addition

        cos(k x) = cos(m a x) cos(b x) - sin(m a x) sin(b x)          (and the same for the sine)

    The sum of such products over samples is an entry of the small matrix U V^T.  The rows of V are 1 and the cosines
    and sines of x, ..., h x.  The rows of U are 1 and the cosines and sines of m x, 2m x, ...

    For 17 knots, U has 5 rows and V has 7: four transcendentals per element instead of 34.  The gradient is a
    trigonometric polynomial in x, and is computed from the same U and V.
    """

    factor = 1.0

    def __init__(self, loss: EppsPulley, like: Float[Tensor, "k v n"]) -> None:
        k, self.v, self.n = like.shape
        rows = k * self.v
        self.scale = loss.dt
        self.knots = knots = _knots(loss, like.dtype)
        self.U, self.V = (like.new_empty(2 * m + 1, rows, self.n) for m in (knots.coarse, knots.fine))
        self.U[0] = self.V[0] = 1
        self.zero = like.new_zeros(())
        self.slope = like.new_empty(rows, len(self.U), self.n)
        self.by_row = self.U.transpose(0, 1), self.V.transpose(0, 1)
        self.terms = list(zip(self.slope.transpose(0, 1)[1:], self.U[1:], strict=True))

    def __call__(self, p: Float[Tensor, "k v n"]) -> Tensor:
        knots, n, x = self.knots, self.n, p.view(-1, self.n)
        _harmonics(x, self.V, self.zero)
        _harmonics(x.mul_(2 * knots.fine + 1), self.U, self.zero)
        U, V = self.by_row
        moments = torch.bmm(U, V.mT).flatten(1) @ knots.combine  # [sum cos(k x), sum sin(k x)], all k
        gap = torch.sub(moments, knots.target, alpha=n)
        value = (gap.square() @ knots.weight).sum() / (n * self.v)

        # dT/dp_i = 2 sum_k c_k phi_k t_k [ (mean sin) cos(k x_i) - (mean cos - phi_k) sin(k x_i) ]
        factors = (gap @ knots.slope).view(-1, U.shape[1], V.shape[1]).div_(n * self.v)
        torch.bmm(factors, V, out=self.slope)
        x.copy_(self.slope[:, 0])
        for slope, harmonic in self.terms:
            x.addcmul_(slope, harmonic)
        return value


def _harmonics(x: Float[Tensor, "r n"], rows: Float[Tensor, "m r n"], zero: Tensor) -> None:
    """Fills the rows after the first, which is 1, with cos x, sin x, -cos 2x, -sin 2x, -cos 3x, -sin 3x, cos 4x, ...

    One pass each, by cos(jx) = 2 cos(x) cos((j-1)x) - cos((j-2)x) and the same for the sine.  The signs save a pass.
    """
    cos = torch.cos(x, out=rows[1])
    torch.sin(x, out=rows[2])
    before = rows[0], zero
    for i in range(3, len(rows), 2):
        twice = -2 if i % 4 == 3 else 2
        torch.addcmul(before[0], rows[i - 2], cos, value=twice, out=rows[i])
        torch.addcmul(before[1], rows[i - 1], cos, value=twice, out=rows[i + 1])
        before = rows[i - 2], rows[i - 1]


def _signs(most: int) -> np.ndarray:
    """The signs of the rows that `_harmonics` fills."""
    return np.array([1, 1, 1, *([-1] * 4 + [1] * 4) * most])[: 2 * most + 1]


@dataclass(frozen=True)
class Knots:
    """The constants of the quadrature.  Columns are the cosines of all knots, then the sines."""

    coarse: int  # a = 1..coarse
    fine: int  # h
    combine: Float[Tensor, "uv knots"]  # entries of U V^T -> sums of cos(k x) and sin(k x)
    target: Float[Tensor, "knots"]  # phi_k, then 0
    weight: Float[Tensor, "knots"]  # c_k phi_k, twice
    slope: Float[Tensor, "knots uv"]  # gaps -> coefficients of the gradient on the products of U and V


@lru_cache(maxsize=16)
def _constants(loss: EppsPulley) -> tuple[int, int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As arrays of numpy: a tensor made under FakeTensorMode would stay fake."""
    t, phi, weight = np.array(list(loss.constants())).T
    fine = math.ceil(((loss.knots - 1) / 4) ** 0.5 + 0.5)  # V is larger than U: the gradient needs another pass over U
    m = 2 * fine + 1
    coarse = max(1, -(-(loss.knots - 1 - fine) // m))
    harmonics = np.zeros((2 * coarse + 1, 2 * fine + 1, 2, loss.knots))  # rows: 1, cos, sin, cos 2., sin 2., ...
    for k in range(loss.knots):
        a, b = divmod(k + fine, m)
        b -= fine
        sign = 1 if b >= 0 else -1
        cos_a, sin_a, cos_b, sin_b = max(0, 2 * a - 1), 2 * a, max(0, 2 * abs(b) - 1), 2 * abs(b)
        harmonics[cos_a, cos_b, 0, k] = 1
        if a:
            harmonics[sin_a, cos_b, 1, k] = 1
        if b:
            harmonics[cos_a, sin_b, 1, k] = sign
        if a and b:
            harmonics[sin_a, sin_b, 0, k] = -sign
    combine = (_signs(coarse)[:, None] * _signs(fine)).reshape(-1, 1) * harmonics.reshape(-1, 2 * loss.knots)
    cos, sin = np.split(combine, 2, axis=1)
    slope = np.concatenate([-sin, cos], axis=1) * np.tile(2 * weight * t, 2)
    return coarse, fine, combine, np.concatenate([phi, 0 * phi]), np.tile(weight, 2), slope.T


def _knots(loss: EppsPulley, dtype: torch.dtype) -> Knots:
    coarse, fine, *arrays = _constants(loss)
    return Knots(coarse, fine, *(torch.from_numpy(a).to(dtype) for a in arrays))


KERNELS: dict[type, Callable[[Any, Tensor], Kernel]] = {
    ToQuantiles: _ToQuantiles,
    ToSamples: _ToSamples,
    EppsPulley: _EppsPulley,
}

# Threads


def threads() -> int:
    """How many threads the slices are split over: as many as torch has."""
    return min(MOST, torch.get_num_threads()) if torch.backends.openmp.is_available() else 1


def on_threads(work: Callable[[int, int], T], of: int) -> list[T]:
    """[work(0, of), ..., work(of - 1, of)], without gradient."""
    if of == 1:
        return [work(0, 1)]
    # Other threads do not inherit this thread's grad mode or autocast; their autocast is off.
    return list(_pool(of).map(torch.no_grad()(work), range(of), [of] * of))


@lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    """Where there are as many threads as CPUs, each thread is bound to one.

    These threads wake each other with Python's lock, and Linux puts a woken thread on the CPU of the one that woke it.
    Unbound, two threads waited a fifth of the time for one CPU while another was idle.
    """
    pool = single_threads(count)
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(cpus) == count:
        together = Barrier(count)

        def settle(cpu: int) -> None:
            together.wait()  # so that no thread takes two
            with suppress(OSError):  # a sandbox may forbid it
                os.sched_setaffinity(0, {cpu})

        list(pool.map(settle, cpus))
    return pool


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live on in the child
