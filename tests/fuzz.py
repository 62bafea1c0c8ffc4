"""Random calls of everything public that takes tensors, and the law that each must keep.

    finite input gives a finite value and a finite gradient, or a ValueError or TypeError that reglet itself raised;
    a call with nothing wrong in it works;  NaN is refused as a hyper-parameter

A row of ROWS is a function of a `Draw`, which hands out sizes, tensors, labels and hyper-parameters: usual ones mostly,
wrong ones now and then.  To look for more than the test does, with the arguments of one call printed for each failure:

    python -m tests.fuzz --calls 25000 --seed 1 [--only LatentDR]
"""

import argparse
import dis
import math
import random
import sys
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from reglet import blocks, diagnostics, groups, latent, losses, probes, tails, views
from reglet.methods import domains

SIZES = {"v": (2, 3), "n": (2, 3, 5, 8), "d": (8,), "t": (9,), "k": (3,), "c": (3,), "h": (6, 7), "w": (6, 7)}
WRONG = (math.nan, math.inf, -math.inf, -1, 0, -0.5, 2.5, 1e30, 1e-30, 100, "a", "0.1", None, (), [1], True, b"x")
FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
ALWAYS = ("k", "perplexity", "epochs", "width", "per_class")  # without a default, or with one too large for 8 samples
SCALES = (1, 1, 1, 1, 0, 1e-30, 1e-8, 1e4, 1e10, 1e20, 1e30)


@dataclass
class Draw:
    """The arguments of one call.  Everything is a function of the seed.

    clean: nothing drawn so far is unusual, so that the call must work.
    nan: the name of a hyper-parameter that is NaN, so that it must not.
    """

    seed: int
    clean: bool = True
    nan: str = ""
    log: list[str] = field(default_factory=list)
    leaves: list[Tensor] = field(default_factory=list)
    degenerate: bool = False  # some tensor does not vary over samples
    device: str = "cpu"  # of the tensors

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.generator = torch.Generator().manual_seed(self.seed)
        self.sizes = {axis: self.random.choice(sizes) for axis, sizes in SIZES.items()}
        # Half of the calls have nothing wrong but their scale and dtype; the others one or two mistakes.
        self.mistakes = 0.0 if self.random.random() < 0.5 else 0.15
        self.dtype = self.random.choice(FLOATS)
        self.scale = self.random.choice(SCALES)
        self.clean = self.scale in (1, 1e4) and not (self.scale == 1e4 and self.dtype == torch.float16)

    def wrong(self) -> bool:
        made = self.random.random() < self.mistakes
        self.clean &= not made
        return made

    def arg(self, name: str, *usual: Any) -> Any:
        """A hyper-parameter: one of `usual`, or something wrong."""
        value = self.random.choice(WRONG) if self.wrong() else self.random.choice(usual)
        value = -1 if value == 1e30 and self.scale > 1e4 else value  # a gradient of 1e30 times 1e30 would be right
        if isinstance(value, float) and math.isnan(value):
            self.nan = name
        self.log.append(f"{name}={value!r}")
        return value

    def args(self, **usual: Any) -> dict[str, Any]:
        """Hyper-parameters: some of them given, each from its tuple of usual values."""
        return {
            name: self.arg(name, *values)
            for name, values in usual.items()
            if name in ALWAYS or self.random.random() < 0.6
        }

    def shape(self, axes: str) -> tuple[int, ...]:
        sizes = [self.sizes[axis] for axis in axes.split()]
        if self.wrong():
            where, how = self.random.randrange(len(sizes)), self.random.randrange(4)
            if how == 0:
                sizes.pop(where)
            elif how == 1:
                sizes.insert(where, self.random.choice((1, 2, 3)))
            else:
                sizes[where] = self.random.choice((0, 1, sizes[where] + 1))
        return tuple(sizes)

    def tensor(self, axes: str, *, scale: float | None = None, grad: bool = True) -> Tensor:
        """Finite floating-point numbers; seldom integers, or a dtype that differs from that of the other tensors."""
        shape, dtype = self.shape(axes), self.dtype
        if self.wrong():
            dtype = self.random.choice((*FLOATS, torch.int64, torch.uint8, torch.bool))
        x = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        kind = self.random.choice(("normal", "normal", "normal", "offset", "constant", "repeated", "dead"))
        if kind == "offset":
            x = 100 + x
        elif kind == "constant":
            x = torch.ones_like(x)
        elif kind == "repeated" and x.ndim > 1:
            x = x[..., :1, :].expand_as(x)
        elif kind == "dead" and x.ndim and x.shape[-1]:
            x = x.clone()
            x[..., 0] = 0
        x = x * (self.scale if scale is None else scale)
        if dtype.is_floating_point:
            most = torch.finfo(dtype).max / 64  # room for a sum
            x = x.clamp(-most, most)
        x = x.to(dtype)
        self.degenerate |= bool((x == x[..., :1, :]).all()) if x.ndim > 1 else kind == "constant"
        if grad and dtype.is_floating_point:
            self.leaves.append(x.requires_grad_())
        self.log.append(f"{kind} {tuple(shape)} {dtype} x {self.scale if scale is None else scale:g}")
        return x

    def whole(self, most: int, axes: str) -> Tensor:
        """Numbers from 0 to most - 1."""
        return torch.randint(most, self.shape(axes), generator=self.generator, device="cpu").to(self.device)

    def labels(self, *, soft: bool = True) -> Tensor:
        n = next(iter(self.shape("n")), 1)
        if soft and self.random.random() < 0.2:
            y = torch.rand(n, self.sizes["k"], generator=self.generator).softmax(1)
        else:
            y = torch.randint(0, self.sizes["k"], (n,), generator=self.generator)
        if self.wrong():
            y = self.random.choice((y - 1, y + 2, y.int(), y.float(), y[:, None], y.bool()))
        self.log.append(f"labels {y.dtype} {tuple(y.shape)}")
        return y

    def head(self) -> nn.Linear:
        """A classifier of float32 mostly, or of the latents' own dtype."""
        torch.manual_seed(self.seed)
        width = self.sizes["d"] + (1 if self.wrong() else 0)
        head = nn.Linear(width, self.sizes["k"])
        self.module(head)
        self.log.append(f"head {width} {head.weight.dtype}")
        return head

    def module(self, module: Any) -> Any:
        """Its parameters must have finite gradients too.  Of float16 they seldom are: that is what scalers are for."""
        if self.random.random() < 0.4 and self.dtype != torch.float16:
            module.to(self.dtype)
        self.leaves += module.parameters()
        return module


Row = Callable[[Draw], Any]
ROWS: dict[str, Row] = {}


def row(*names: str) -> Callable[[Row], Row]:
    """`room.Name` of what the function calls; several where one call covers them all."""

    def add(function: Row) -> Row:
        ROWS.update(dict.fromkeys(names, function))
        return function

    return add


# Losses on views ----------------------------------------------------------------------------------------------------

SLICED = {"slices": (8, 16), "seed": (0, 3), "shared_slices": (True, False)}
VISREG = {"scale": (1.0, 0.5), "shape": (1.0,), "center": (1.0,), "eps": (1e-6,), "detach": (True, False)}
RECTIFIED = {"p": (1.0, 2.0, 0.7), "mu": (0.0, -1.0), "sigma": (None, 0.5)}
VIEW_LOSSES: dict[str, dict[str, tuple[Any, ...]]] = {
    "BarlowTwinsLoss": {"weight": (0.0051, 1), "eps": (1e-5,), "variant": ("official", "visreg")},
    "VICRegLoss": {
        "invariance": (25.0,),
        "variance": (25.0,),
        "covariance": (1.0,),
        "gamma": (1.0,),
        "eps": (1e-4,),
        "variant": ("official", "paper", "solo", "visreg"),
    },
    "VICReg": {"variance": (25.0,), "covariance": (1.0,), "gamma": (1.0,), "eps": (1e-4,)},
    "WeakSIGReg": {"slices": (3, 8), "seed": (0, 1)},
    "KoLeo": {"eps": (1e-8,)},
    "MMCRLoss": {"weight": (5e-3, 1.0), "normalize": (True, False)},
    "FroSSL": {},
    "FroSSLLoss": {"weight": (1.0,)},
    "CodingRate": {"eps": (0.2,), "normalize": (True, False)},
    "EMPSSLLoss": {"weight": (200.0,), "eps": (0.2,), "normalize": (True, False)},
    "WMSELoss": {"eps": (1e-4, 0.1)},
    "TiCoLoss": {"beta": (0.9,), "rho": (8.0,)},
    "BHEP": {"beta": (1.0, None)},
    "RadialVCReg": {"variance": (25.0,), "cross_entropy": (100.0,), "entropy": (100.0,), "eps": (1e-6,)},
    "SubspaceSIGReg": {**SLICED, "subspaces": (2, 4), "subspace_dim": (None, 3)},
    "RDMReg": {**SLICED, **RECTIFIED},
    "RectifiedLpJEPALoss": {**SLICED, **RECTIFIED, "invariance": (25.0,), "weight": (125.0,)},
    "DirectCLRLoss": {"dims": (4, 64), "temperature": (0.5,)},
    "NTXentLoss": {"temperature": (0.5, 0.1)},
    "SMILoss": {
        "weight": (0.1,),
        "on": ("sq", "hinge", "neg"),
        "off": ("sq", "lin"),
        "pairs": (("12",), ("12", "11", "22")),
        "eps": (1e-6,),
        "target": (1.0,),
        "reduction": ("mean", "sum"),
    },
    "SIGReg": {**SLICED, "knots": (17, 5), "t_max": (3.0,)},
    "LeJEPALoss": {**SLICED, "lam": (0.02,), "knots": (17,), "t_max": (3.0,)},
    "SWD": {**SLICED, "clamp": (1e-4,)},
    "SWDLoss": {**SLICED, "lam": (0.6,), "clamp": (1e-4,)},
    "VISReg": {**SLICED, **VISREG, "positions": ("weibull", "hazen")},
    "VISRegLoss": {**SLICED, **VISREG, "lam": (0.9,)},
}


def view_loss(name: str) -> Row:
    def call(draw: Draw) -> Any:
        arguments = draw.args(**VIEW_LOSSES[name])
        if "slices" in VIEW_LOSSES[name]:
            arguments.setdefault("slices", 8)
        loss = getattr(losses, name)(**arguments)
        if draw.random.random() < 0.5:
            return loss.terms(draw.tensor("v n d"))
        return loss(draw.tensor("n d"), draw.tensor("n d"))

    return call


for each in VIEW_LOSSES:
    ROWS[f"losses.{each}"] = view_loss(each)


def formula(name: str, axes: str, **usual: Any) -> None:
    """A function of the same maths.  axes: of its tensors, with a comma between."""

    def call(draw: Draw) -> Any:
        draw.sizes["k"] = 4
        tensors = [draw.tensor(each, scale=1 if each == "k d" else None) for each in axes.split(",")]
        return getattr(losses, name)(*tensors, **draw.args(**usual))

    ROWS[f"losses.{name}"] = call


formula("barlow_twins", "n d,n d", eps=(1e-5,), variant=("official", "visreg"))
formula("ntxent", "n d,n d", temperature=(0.5, 0.1))
formula("vicreg_regularizers", "v n d", gamma=(1.0,), eps=(1e-4,))
formula("smi_alignment", "n d,n d", on=("sq", "hinge", "neg"), eps=(1e-6,), target=(1.0,), signed=(True, False))
formula("smi_redundancy", "n d,n d", eps=(1e-6,), off=("sq", "lin"))
formula("epps_pulley", "v n d,k d", knots=(17, 5), t_max=(3.0,))
formula("sliced_wasserstein", "v n d,k d", clamp=(1e-4, 0.0))
formula("visreg_center", "v n d")
formula("visreg_scale", "v n d", eps=(1e-6,))
formula("visreg_shape", "v n d,k d", eps=(1e-6,), detach=(True, False), positions=("weibull", "hazen"))


# Blocks -------------------------------------------------------------------------------------------------------------


@row("blocks.SIM", "blocks.SIMHead")
def sim(draw: Draw) -> Any:
    loss = blocks.SIM(
        **draw.args(
            rho=(0.5, 3),
            dim=("sqrt", 4, None),
            loss=("norm_l2", "norm_mse", "mse", "l1", "smooth_l1", "cosine", "kl", "wasserstein"),
            reduction=("mean", "sum"),
            sampling=("shared", "per_sample", "salient"),
            match=("stem", "pre"),
            skip_tokens=(0, 1),
            eps=(1e-4, 1e-6),
            seed=(0, 1),
        )
    )
    axes = draw.random.choice(("n t d", "n c h w"))
    value = loss(draw.tensor(axes), draw.tensor(axes))
    draw.leaves += loss.parameters()
    return value


@row("blocks.patch_ntxent", "blocks.PatchNTXent")
def patches(draw: Draw) -> Any:
    arguments = draw.args(temperature=(0.3,), intra=(True, False), symmetric=(True, False))
    if draw.random.random() < 0.5:
        return blocks.PatchNTXent(**arguments)(draw.tensor("n t d"), draw.tensor("n t d"))
    return blocks.patch_ntxent(draw.tensor("n t d"), draw.tensor("n t d"), **arguments)


TWO_PLACES = {
    "Cosine": {},
    "L2": {"unit": (True, False)},
    "CKA": {},
    "Gram": {"over": ("tokens", "samples")},
}


def two_places(name: str) -> Callable[[Draw], Any]:
    def call(draw: Draw) -> Any:
        loss = getattr(blocks, name)(**draw.args(**TWO_PLACES[name]))
        return loss(draw.tensor("n t d"), draw.tensor("n t d"))

    return call


for each in TWO_PLACES:
    ROWS[f"blocks.{each}"] = two_places(each)


# Latents, labels and a classifier -----------------------------------------------------------------------------------


def criterion(draw: Draw) -> Any:
    return tails.BalancedSoftmax([5, 2, 1]) if draw.random.random() < 0.2 else None


def latent_loss(name: str, *, width: bool = True, **usual: Any) -> None:
    def call(draw: Draw) -> Any:
        arguments = {**draw.args(**usual), "criterion": criterion(draw)}
        if "criterion" in usual:
            del arguments["criterion"]
        built = getattr(latent, name)
        loss = draw.module(built(draw.arg("dim", draw.sizes["d"]), **arguments) if width else built(**arguments))
        z, y, head = draw.tensor("n d"), draw.labels(), draw.head()
        return loss.terms(z, y, head) if draw.random.random() < 0.5 else loss(z, y, head)

    ROWS[f"latent.{name}"] = call


latent_loss("CrossEntropy", width=False, label_smoothing=(0.0, 0.1))
latent_loss("BatchFormer", heads=(1, 4), ff=(None, 5), dropout=(0.0, 0.5))
latent_loss("NoisyLatents", sigma=(0.1, 1.0))
latent_loss(
    "LatentDR",
    original=(1.0, 0),
    degraded=(1.0, 0.5),
    restored=(1.0,),
    degrade=("attention", "pool", "gaussian"),
    parts=("D+R", "D", "R"),
    inner=(None, 4),
    ff=(None, 5),
    heads=(None, 1),
    dropout=(0.0, 0.5),
    norm=("post", "pre", "eq13"),
    pool_size=(2,),
    exclude_self=(False,),
    sigma=(1.0,),
)


@row("latent.smooth")
def smooth(draw: Draw) -> Any:
    return latent.smooth(draw.tensor("n k"), eps=draw.arg("eps", 0.1, 0.0))


@row("latent.Mixup", "latent.CutMix")
def mixing(draw: Draw) -> Any:
    if draw.random.random() < 0.5:
        mix, axes = latent.Mixup(**draw.args(alpha=(1.0, 0.2))), draw.random.choice(("n d", "n c h w"))
    else:
        mix, axes = latent.CutMix(**draw.args(alpha=(1.0, 0.2), prob=(1.0, 0.5))), "n c h w"
    p = mix.draw(draw.arg("n", draw.sizes["n"]), draw.generator)
    if draw.random.random() < 0.5:
        return mix.apply(draw.tensor(axes), p)
    return mix.mix(draw.tensor(axes), draw.labels(), p, num_classes=draw.arg("num_classes", draw.sizes["k"]))


@row("latent.MixStyle")
def mixstyle(draw: Draw) -> Any:
    mix = latent.MixStyle(**draw.args(prob=(1.0, 0.5), alpha=(0.1,), partner=("random", "crossdomain"), eps=(1e-6,)))
    if draw.random.random() < 0.3:
        return mix(draw.tensor("n c h w"))
    return mix.apply(draw.tensor("n c h w"), mix.draw(draw.arg("n", draw.sizes["n"]), draw.generator))


@row("latent.ManifoldMixup")
def manifold_mixup(draw: Draw) -> Any:
    width, classes = draw.sizes["d"], draw.sizes["k"]
    model = nn.Sequential(nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, classes)).to(draw.dtype)
    mixing = latent.ManifoldMixup(model, ["0", "1"], **draw.args(alpha=(2.0,), with_input=(True, False)))
    p = mixing.draw(draw.arg("n", draw.sizes["n"]), draw.generator)
    n = draw.sizes["n"] + draw.wrong()
    # The network is the user's, and so its input.
    x = torch.randn(n, width, generator=draw.generator, device="cpu").to(draw.device, draw.dtype)
    return mixing(x, p), mixing.labels(draw.labels(), p, num_classes=draw.arg("num_classes", classes))


@row("latent.GaussianNoise")
def gaussian_noise(draw: Draw) -> Any:
    noise = latent.GaussianNoise(draw.arg("dim", draw.sizes["d"]), **draw.args(sigma=(1.0, 0.1)))
    if draw.random.random() < 0.3:
        return noise(draw.tensor("n d"))
    return noise.apply(draw.tensor("n d"), noise.draw(draw.arg("n", draw.sizes["n"]), draw.generator))


@row("latent.RandomPool")
def random_pool(draw: Draw) -> Any:
    pool = latent.RandomPool(draw.arg("size", 1, 2), **draw.args(exclude_self=(False,)))
    if draw.random.random() < 0.3:
        return pool(draw.tensor("n d"), draw.tensor("n d"))
    return pool.apply(draw.tensor("n d"), pool.draw(draw.arg("n", draw.sizes["n"]), draw.generator))


# Long tails ---------------------------------------------------------------------------------------------------------


def counts(draw: Draw) -> Any:
    usual = [5, 2, 1], torch.tensor([5, 2, 1]), (50.0, 20.0, 1.0)
    wrong = [5, 2], [], [5, math.inf, 1], [5, -2, 1], "abc", 7, [[1, 2, 3]], [1, "a", 2], None
    value = draw.random.choice(wrong) if draw.wrong() else draw.random.choice(usual)
    draw.log.append(f"counts={value}")
    return value


@row("tails.LogitAdjustment", "tails.BalancedSoftmax")
def adjusted(draw: Draw) -> Any:
    if draw.random.random() < 0.5:
        loss = tails.BalancedSoftmax(counts(draw))
    else:
        loss = tails.LogitAdjustment(counts(draw), **draw.args(tau=(1.0, 0.0)))
    logits = draw.tensor("n k")
    return draw.random.choice(
        (lambda: loss(logits, draw.labels()), lambda: loss.adjust(logits), lambda: loss.post_hoc(logits))
    )()


@row("tails.BCL")
def bcl(draw: Draw) -> Any:
    loss = tails.BCL(counts(draw), **draw.args(cross_entropy=(1.0,), contrast=(0.35, 0), temperature=(0.1,)))
    logits, y = draw.tensor("n k"), draw.labels(soft=False)
    return loss.terms(logits, y, draw.tensor("v n d"), draw.tensor("k d"))


@row("tails.balanced_contrast")
def balanced_contrast(draw: Draw) -> Any:
    u, y, prototypes = draw.tensor("v n d"), draw.labels(soft=False), draw.tensor("k d")
    return tails.balanced_contrast(u, y, prototypes, **draw.args(temperature=(0.1, 1.0)))


# Domains ------------------------------------------------------------------------------------------------------------


def domain_loss(name: str, **usual: Any) -> None:
    def call(draw: Draw) -> Any:
        loss = getattr(domains, name)(**draw.args(**usual), **({"domains": 2} if name == "GroupDRO" else {}))
        y = [draw.labels() for _ in range(1 if draw.wrong() else 2)]
        z = [draw.tensor("n d") for _ in range(1 if draw.wrong() else 2)]
        head = draw.head()
        if draw.random.random() < 0.3:
            loss.after_step(500)
        return loss.terms(z, y, head) if draw.random.random() < 0.5 else loss(z, y, head)

    ROWS[f"methods.domains.{name}"] = call


domain_loss("ERM")
domain_loss("IRM", weight=(100.0,), before=(1.0,), anneal=(500, 0))
domain_loss("VREx", weight=(10.0,), before=(1.0,), anneal=(500, 0))
domain_loss("GroupDRO", eta=(0.01,))
domain_loss("CORAL", weight=(1.0,))
domain_loss("MMD", weight=(1.0,), gammas=((0.1, 1.0),))


@row("methods.domains.OnUnion")
def on_union(draw: Draw) -> Any:
    loss = domains.OnUnion(latent.LatentDR(draw.sizes["d"], degrade=draw.random.choice(("attention", "pool"))))
    return loss([draw.tensor("n d"), draw.tensor("n d")], [draw.labels(soft=False) for _ in range(2)], draw.head())


@row("methods.domains.coral", "methods.domains.mmd")
def discrepancy(draw: Draw) -> Any:
    z = [draw.tensor("n d") for _ in range(1 if draw.wrong() else 2)]
    return domains.coral(z) if draw.random.random() < 0.5 else domains.mmd(z, **draw.args(gammas=((0.1, 1.0), (2,))))


@row("methods.domains.irm_penalty")
def irm_penalty(draw: Draw) -> Any:
    return domains.irm_penalty(draw.tensor("n k"), draw.labels())


@row("methods.domains.training_domain", "methods.domains.leave_one_domain_out", "methods.domains.oracle")
def selection(draw: Draw) -> Any:
    rules = ((domains.training_domain, "n k v"), (domains.leave_one_domain_out, "n k v"), (domains.oracle, "n k"))
    rule, axes = draw.random.choice(rules)
    return rule(draw.tensor(axes, grad=False))


# Groups -------------------------------------------------------------------------------------------------------------


def elements(draw: Draw) -> groups.D4:
    n = draw.sizes["n"] + draw.wrong()
    turn = torch.randint(4, (n,), generator=draw.generator, device="cpu")
    if draw.wrong():
        turn = turn + 4
    return groups.D4(turn, torch.rand(n, generator=draw.generator, device="cpu") < 0.5)


@row("groups.act", "groups.D4")
def act(draw: Draw) -> Any:
    draw.sizes["w"] = draw.sizes["h"]
    return groups.act(draw.tensor("n c h w"), elements(draw))


@row("groups.act_on_tokens", "groups.align")
def act_on_tokens(draw: Draw) -> Any:
    y, g, grid = draw.tensor("n t d"), elements(draw), draw.arg("grid", (3, 3))
    if draw.random.random() < 0.5:
        return groups.act_on_tokens(y, g, grid=grid)
    return groups.align(y, g, grid=grid, to=draw.arg("to", (3, 3), (2, 4)))


@row("groups.resize", "groups.resize_tokens")
def resize(draw: Draw) -> Any:
    if draw.random.random() < 0.5:
        return groups.resize(draw.tensor("n c h w"), draw.arg("size", (5, 4), (6, 6)))
    return groups.resize_tokens(draw.tensor("n t d"), grid=draw.arg("grid", (3, 3)), to=draw.arg("to", (2, 4)))


@row("groups.Symmetry", "groups.Element", "groups.transform", "groups.relative")
def symmetry(draw: Draw) -> Any:
    group = groups.Symmetry(
        **draw.args(
            turns=(True, False),
            flips=(True, False),
            area=(None, (0.7, 1.3)),
            ratio=((0.75, 4 / 3),),
            grid=((3, 3),),
            patch=(2,),
        )
    )
    element = group.draw(draw.arg("n", draw.sizes["n"]), draw.generator)
    groups.relative(element, element)
    return group.apply(draw.tensor("n c h w"), element)


# Views --------------------------------------------------------------------------------------------------------------


def one_each(draw: Draw) -> Tensor:
    return torch.rand(draw.shape("n")[:1] or 1, generator=draw.generator, device="cpu").to(draw.device)


@row(
    *(
        f"views.{name}"
        for name in (
            *("adjust_brightness", "adjust_contrast", "adjust_hue", "adjust_saturation", "color_jitter", "hflip"),
            *("gaussian_blur", "quarter_turn", "resized_crop", "rgb_to_grayscale", "rotate", "solarize"),
        )
    )
)
def operation(draw: Draw) -> Any:
    """Images are in [0, 1] here, and square, as odd quarter turns want them."""
    draw.sizes["w"] = draw.sizes["h"]
    name = draw.random.choice([name for name, f in ROWS.items() if f is operation])
    draw.log.append(name)
    x = draw.tensor("n c h w", scale=1)
    if x.is_floating_point():
        with torch.no_grad():
            x.clamp_(0, 1)
    each = one_each(draw)
    return {
        "adjust_brightness": lambda: views.adjust_brightness(x, each),
        "adjust_contrast": lambda: views.adjust_contrast(x, each),
        "adjust_saturation": lambda: views.adjust_saturation(x, each),
        "adjust_hue": lambda: views.adjust_hue(x, each - 0.5),
        "color_jitter": lambda: views.color_jitter(
            x, each[:, None].expand(-1, 4) * 0.5, torch.arange(4).expand(len(each), -1)
        ),
        "gaussian_blur": lambda: views.gaussian_blur(x, each, kernel=draw.arg("kernel", 3, 5)),
        "hflip": lambda: views.hflip(x, each < 0.5),
        "quarter_turn": lambda: views.quarter_turn(x, (4 * each).long()),
        "rgb_to_grayscale": lambda: views.rgb_to_grayscale(x),
        "rotate": lambda: views.rotate(x, 360 * each, fill=draw.arg("fill", 0.0)),
        "solarize": lambda: views.solarize(x, threshold=draw.arg("threshold", 0.5)),
        "resized_crop": lambda: views.resized_crop(
            x,
            torch.tensor([0, 1, 4, 3]).expand(len(each), -1),
            size=draw.arg("size", 4),
            interpolation=draw.arg("interpolation", "bilinear", "bicubic"),
        ),
    }[name.removeprefix("views.")]()


@row("views.View", "views.Blur", "views.ColorJitter", "views.Normalize", "views.PadCrop", "views.ResizedCrop")
def view(draw: Draw) -> Any:
    crop = draw.random.choice(
        (
            lambda: views.ResizedCrop(**draw.args(scale=((0.2, 1.0),), ratio=((0.75, 4 / 3),))),
            lambda: views.PadCrop(**draw.args(padding=(1, 0))),
        )
    )()
    whole = views.View(
        draw.arg("size", 4, 6),
        crop=crop,
        **draw.args(flip=(0.5,), rotate=(0.0, 30.0), turns=(True, False), gray=(0.2,), solarize=(0.2,)),
        jitter=views.ColorJitter(**draw.args(brightness=(0.4,), contrast=(0.4,), saturation=(0.2,), hue=(0.1,))),
        blur=views.Blur(draw.arg("kernel", 3), **draw.args(sigma=((0.1, 2.0),), p=(0.5,))),
        normalize=views.Normalize(**draw.args(mean=((0.5, 0.5, 0.5),), std=((0.2, 0.2, 0.2),))),
    )
    drawn = whole.draw(draw.arg("n", draw.sizes["n"]), draw.generator)
    x = draw.tensor("n c h w", scale=1, grad=False)
    return whole.apply(x.clamp(0, 1) if x.is_floating_point() else x, drawn)


@row("views.policy", "views.Policy")
def policy(draw: Draw) -> Any:
    made = views.policy(draw.arg("name", "plain", "simclr", "digits"), size=draw.arg("size", 6))
    drawn = made.draw(draw.arg("n", draw.sizes["n"]), draw.generator)
    return made.apply(draw.tensor("n c h w", scale=1, grad=False).clamp(0, 1), drawn)


# Diagnostics --------------------------------------------------------------------------------------------------------


def about(name: str, axes: str, *, least: int = 2, varied: bool = False, **usual: Any) -> None:
    """A function of tensors with these axes, a comma between, that gives numbers.

    least: samples that it needs.  varied: it may refuse features that do not vary, or call their number undefined.
    """

    def call(draw: Draw) -> Any:
        draw.sizes["n"] = max(least, draw.sizes["n"])
        out = getattr(diagnostics, name)(
            *(draw.tensor(each, grad=False) for each in axes.split(",")), **draw.args(**usual)
        )
        return None if varied and draw.degenerate else out

    def unless_degenerate(draw: Draw) -> Any:
        try:
            return call(draw)
        finally:
            draw.clean &= not (varied and draw.degenerate)

    ROWS[f"diagnostics.{name}"] = unless_degenerate


about("alignment", "v n d", alpha=(2.0, 1))
about("uniformity", "n d", t=(2.0, 0.5), chunk=(1, 1024))
about("batch_share", "v n d")
about("mode_gap", "n d,n d", varied=True)
about("linear_cka", "n d,n k", varied=True)
about("covariance_rank", "n d")
about("relative_spread", "n d")
about("rankme", "n d", eps=(1e-7, 0))
about("alpha_req", "n d", least=5, varied=True, first=(1, 2), last=(None, 4))
about("lidar", "v n d", delta=(1e-4, 1), eps=(1e-7,))
about("eigenspectrum", "n d")
about("explained_variance", "n d")
about("feature_std", "n d")
about("cross_correlation", "n d,n d")
about("same_slices", "n d")
about("agreement", "n c h w,n c h w")
about("energy_maps", "n c h w", size=(None, (4, 5)))
about("as_colours", "n c h w", size=(None, (4, 5)))
about("pca_maps", "n c h w", components=(1, 3))
about("match_components", "n c h w,n c h w")
about("nearest", "n d,n d", least=3, k=(1, 2), own=(True, False), chunk=(1, 1024))
about("tsne", "n d", least=5, varied=True, components=(2, 3), perplexity=(2.0, 3), seed=(0, 1))


@row("diagnostics.cka_matrix")
def cka_matrix(draw: Draw) -> Any:
    """Debiased, few samples can leave it undefined, see its docstring."""
    draw.sizes["n"] = 8
    xs = [draw.tensor("n d", grad=False), draw.tensor("n k", grad=False)]
    debiased = draw.arg("debiased", True, False)
    found = diagnostics.cka_matrix(xs, xs[: draw.random.choice((1, 2))], debiased=debiased)
    return None if draw.degenerate or debiased else found


@row("diagnostics.class_alignment", "diagnostics.neighbours_across_domains")
def with_classes(draw: Draw) -> Any:
    draw.sizes["n"] = 8
    z, y = draw.tensor("n d", grad=False), draw.labels(soft=False)
    if draw.random.random() < 0.5:
        return diagnostics.class_alignment(z, y)
    found = diagnostics.neighbours_across_domains(z, y, draw.labels(soft=False), k=draw.arg("k", 1, 3))
    return found[:3]  # the last is undefined where all neighbours are of one domain


@row("diagnostics.noise_rank")
def noise_rank(draw: Draw) -> Any:
    return diagnostics.noise_rank(draw.arg("n", 2, 100), draw.arg("d", 1, 64))


@row("diagnostics.effective_rank")
def effective_rank(draw: Draw) -> Any:
    weights = draw.tensor("d", grad=False)
    return diagnostics.effective_rank(weights.abs() if draw.clean else weights)


@row("diagnostics.same_image_auc")
def same_image_auc(draw: Draw) -> Any:
    draw.sizes["v"] = 2
    return diagnostics.same_image_auc(draw.tensor("v n d", grad=False))


@row("diagnostics.redundancy_to_alignment")
def redundancy(draw: Draw) -> Any:
    """Constants are 1 here, on the diagonal too, and a perfect alignment makes the ratio infinite."""
    found = diagnostics.redundancy_to_alignment(draw.tensor("d d", grad=False), **draw.args(weight=(1.0, 0.0051)))
    return None if draw.degenerate else found


@row("diagnostics.gradient_norms")
def gradient_norms(draw: Draw) -> Any:
    x = draw.tensor("n d")
    term = x.double().square().sum() if x.requires_grad else x.sum()
    return diagnostics.gradient_norms({"square": term, "fixed": torch.ones(())}, draw.random.choice((x, [x])))


def some_numbers(draw: Draw) -> Any:
    usual = [3.0, 1.0, 2.0, 4.0], (1, 2.5, 2, 8)
    wrong = [], [1.0], [1.0, math.nan, 2.0], [math.inf, 1.0, 2.0], "abc", 7, None, [[1.0, 2.0]], [-1.0, 1.0, 2.0], ["a"]
    value = draw.random.choice(wrong) if draw.wrong() else draw.random.choice(usual)
    draw.log.append(f"numbers={value}")
    return value


@row("diagnostics.gradient_spikes", "diagnostics.loss_accuracy_correlation")
def over_time(draw: Draw) -> Any:
    if draw.random.random() < 0.5:
        return diagnostics.gradient_spikes(some_numbers(draw), **draw.args(factor=(3.0,), decay=(0.98, 0)))
    return diagnostics.loss_accuracy_correlation(some_numbers(draw), some_numbers(draw))


@row(*(f"diagnostics.{name}" for name in ("equivariance", "standard_transforms", "predict_flip", "predict_rotation")))
def of_layers(draw: Draw) -> Any:
    draw.sizes |= {"n": 5, "h": 8, "w": 8}
    images = draw.tensor("n c h w", grad=False)

    def layers(x: Tensor) -> dict[str, Tensor]:
        return {"itself": x}

    def score(*parts: Tensor) -> float:
        return probes.knn_probe(*parts, k=1)

    return draw.random.choice(
        (
            lambda: diagnostics.equivariance(
                layers, images, transforms=diagnostics.standard_transforms(**draw.args(multiple=(2,)))
            ),
            lambda: diagnostics.predict_flip(layers, images, score=score, **draw.args(pair=(True, False), seed=(0, 1))),
            lambda: diagnostics.predict_rotation(layers, images, score=score, **draw.args(pair=(True, False))),
        )
    )()


@row("diagnostics.diagnose", "diagnostics.Symptoms")
def diagnose(draw: Draw) -> Any:
    draw.sizes["v"] = 2
    some = draw.random.random() < 0.5
    symptoms = diagnostics.Symptoms(
        draw.tensor("n d", grad=False),
        views=draw.tensor("v n d", grad=False) if some else None,
        embeddings=draw.tensor("v n k", grad=False) if some else None,
        gradients={"invariance": 1.0, "scale": 0.1} if some else None,
    )
    return diagnostics.diagnose(symptoms).numbers


# Probes -------------------------------------------------------------------------------------------------------------


def every_class(draw: Draw) -> Tensor:
    """Labels of 8 samples, none of the three classes without one."""
    draw.sizes["n"] = 8
    y = draw.labels(soft=False)
    if draw.clean:
        y[:6] = torch.tensor([0, 1, 2, 0, 1, 2])
    return y


def probe(name: str, **usual: Any) -> None:
    def call(draw: Draw) -> Any:
        labels = every_class(draw), every_class(draw)
        train, test = draw.tensor("n d", grad=False), draw.tensor("n d", grad=False)
        found = getattr(probes, name)(train, labels[0], test, labels[1], **draw.args(**usual))
        return [part for part in found if not isinstance(part, dict)] if isinstance(found, tuple) else found

    ROWS[f"probes.{name}"] = call


CHOSEN = {"holdout": (0.2, 0.5), "seed": (0, 1)}
STRENGTHS: Any = ((0.1,), [0.01, 1.0])
probe("knn_probe", k=(3,), temperature=(0.07, 1))
probe("linear_probe", strengths=STRENGTHS, **CHOSEN)
probe("ridge_probe", strengths=STRENGTHS, **CHOSEN)
probe("few_label_probe", per_class=(2,), draws=(1, 2), seed=(0,))
probe("few_label_correct", per_class=(2,), draws=(1, 2), seed=(0,))
probe(
    "mlp_probe", width=(4,), epochs=(1,), rates=((1e-3,), [1e-3, 1e-2]), batch=(4,), weight_decay=(0.0, 0.1), **CHOSEN
)
probe(
    "linear_sgd_probe",
    epochs=(2,),
    rates=((0.1,), [0.1, 0.01]),
    batch=(4,),
    weight_decay=(0.0, 0.1),
    damping=(None, 0.01),
    **CHOSEN,
)


@row("probes.knn_votes")
def knn_votes(draw: Draw) -> Any:
    y = every_class(draw)
    k, temperature, chunk = draw.arg("k", 1, 3), draw.arg("temperature", 0.07), draw.arg("chunk", 2, 1024)
    train, test = draw.tensor("n d", grad=False), draw.tensor("n d", grad=False)
    return probes.knn_votes(train, y, test, k=k, temperature=temperature, chunk=chunk)


@row("probes.logistic_regression")
def logistic_regression(draw: Draw) -> Any:
    y = every_class(draw)
    strength = draw.arg("strength", 0.1, 1)
    return probes.logistic_regression(
        draw.tensor("n d", grad=False), y, strength=strength, **draw.args(tolerance=(1e-5,))
    )


@row("probes.layer_groups")
def layer_groups(draw: Draw) -> Any:
    groups = probes.layer_groups(
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)),
        lr=draw.arg("lr", 0.1),
        weight_decay=draw.arg("weight_decay", 0.0, 0.1),
        layer_decay=draw.arg("layer_decay", 0.75, 1),
    )
    return [group["lr"] for group in groups]


@row("probes.fine_tune")
def fine_tune(draw: Draw) -> Any:
    draw.sizes |= {"h": 6, "w": 6, "n": 8}
    images = [draw.whole(256, "n c h w").to(torch.uint8) for _ in range(2)]
    labels = every_class(draw), every_class(draw)
    arguments = draw.args(
        batch=(4, 256),
        lr=(1e-3,),
        layer_decay=(0.75, 1),
        weight_decay=(0.0,),
        warmup=(0.1, 0),
        label_smoothing=(0.1,),
        mixup=(0.8, 0),
        cutmix=(1.0, 0),
        clip=(1.0,),
        seed=(0,),
    )
    size, epochs = draw.arg("size", 6), draw.arg("epochs", 1)
    if isinstance(epochs, int) and epochs > 2:
        epochs = 2
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    found = probes.fine_tune(network, images[0], labels[0], images[1], labels[1], size=size, epochs=epochs, **arguments)
    return found.accuracy, found.logits


@row("probes.segmentation_probe")
def segmentation_probe(draw: Draw) -> Any:
    grid, epochs = draw.arg("grid", (3, 3)), draw.arg("epochs", 1)
    tokens = draw.tensor("n t d", grad=False), draw.tensor("n t d", grad=False)
    masks = [draw.whole(2, "n h w") for _ in range(2)]
    if draw.wrong():
        masks[0] = draw.random.choice((masks[0] - 1, masks[0].float(), masks[0].bool(), masks[0][0]))
    arguments = draw.args(ignore=(None,), batch=(2, 16), lr=(2e-3,), weight_decay=(0.01,), seed=(0,))
    if isinstance(epochs, int) and epochs > 2:
        epochs = 2
    found = probes.segmentation_probe(tokens[0], masks[0], tokens[1], masks[1], grid=grid, epochs=epochs, **arguments)
    return found.mean_iou, found.accuracy


@row("probes.metrics.accuracy", "probes.metrics.top_k_accuracy", "probes.metrics.expected_calibration_error")
def of_scores(draw: Draw) -> Any:
    scores, y = draw.tensor("n k", grad=False), draw.labels(soft=False)
    return draw.random.choice(
        (
            lambda: probes.metrics.accuracy(scores, y),
            lambda: probes.metrics.top_k_accuracy(scores, y, k=draw.arg("k", 1, 2)),
            lambda: probes.metrics.expected_calibration_error(
                scores.double().softmax(-1) if scores.ndim and draw.clean else scores, y, **draw.args(bins=(15, 2))
            ),
        )
    )()


@row("probes.metrics.auroc", "probes.metrics.multilabel_auroc")
def of_truth(draw: Draw) -> Any:
    """Areas are undefined where no class has both kinds of samples."""
    scores, truth = draw.tensor("n k", grad=False), draw.whole(2, "n k") < 1
    if draw.wrong():
        truth = draw.random.choice((truth.int(), truth.float(), truth[..., :1], truth.tolist()))
    if draw.random.random() < 0.5:
        probes.metrics.auroc(scores, draw.labels(soft=False))
    else:
        probes.metrics.multilabel_auroc(scores, truth)
    return None


@row(
    *(
        f"probes.metrics.{name}"
        for name in ("confusion", "macro_f1", "balanced_accuracy", "many_medium_few", "mean_iou")
    )
)
def of_predictions(draw: Draw) -> Any:
    guess, y, k = draw.labels(soft=False), draw.labels(soft=False), draw.sizes["k"]
    counts = torch.tensor([200, 50, 5][: 2 if draw.wrong() else 3])
    return draw.random.choice(
        (
            lambda: probes.metrics.confusion(guess, y, classes=draw.arg("classes", k)),
            lambda: probes.metrics.macro_f1(guess, y),
            lambda: probes.metrics.balanced_accuracy(guess, y),
            lambda: probes.metrics.many_medium_few(guess, y, counts, **draw.args(many=(100,), few=(20,))) and None,
            lambda: probes.metrics.mean_iou(probes.metrics.confusion(guess, y, classes=k)[: 2 if draw.wrong() else 3]),
        )
    )()


@row("probes.metrics.dice", "probes.metrics.iou")
def of_a_table(draw: Draw) -> Any:
    table = 1 + draw.whole(5, "k k")  # a class that neither occurs nor was predicted has no score
    return draw.random.choice((probes.metrics.dice, probes.metrics.iou))(table - (9 if draw.wrong() else 0))


@row("probes.metrics.wilson_interval")
def wilson_interval(draw: Draw) -> Any:
    return probes.metrics.wilson_interval(
        draw.arg("fraction", 0.5, 0, 1.0), draw.arg("n", 1, 50), **draw.args(z=(1.96,))
    )


# What has no row of its own, and why.
EXEMPT = {
    "what was drawn, a record": "views.MaskedDraw views.Masks "
    "latent.Cut views.Crops latent.LayerMix latent.Mix latent.Styles views.Draw "
    "methods.domains.Split methods.domains.Choice diagnostics.Agreement diagnostics.AcrossDomains "
    "diagnostics.Correlation diagnostics.Spikes diagnostics.Verdict probes.FewLabelScore probes.FineTuneScore "
    "probes.LinearScore probes.LinearSGDScore probes.MLPScore probes.RidgeScore probes.SegmentationScore "
    "probes.metrics.ByFrequency",
    "a protocol or a base class": "latent.Criterion methods.domains.DomainLoss methods.domains.OnDomains",
    "takes a network or a class body, not tensors": "blocks.collect_SIM blocks.forward_with_SIM blocks.init_SIM "
    "blocks.sim_loss methods.domains.Domains diagnostics.layer_maps probes.last_blocks",
    "takes numbers of samples, not tensors of values": "methods.domains.Batches methods.domains.by_domain "
    "methods.domains.leave_out views.share_geometry views.BlockMasks",
    "a table": "views.POLICIES",
    "takes another loss": "losses.WithInvariance",
    "takes another policy": "views.MaskedViews",
}
ROOMS = {
    "losses": losses,
    "blocks": blocks,
    "latent": latent,
    "tails": tails,
    "methods.domains": domains,
    "groups": groups,
    "views": views,
    "diagnostics": diagnostics,
    "probes": probes,
    "probes.metrics": probes.metrics,
}


def public() -> Iterator[str]:
    """`room.Name` of everything that a room exports."""
    for name, room in ROOMS.items():
        exported = getattr(room, "__all__", None) or [
            key for key, value in vars(room).items() if not key.startswith("_") and not hasattr(value, "__path__")
            and type(value).__name__ != "module" and getattr(value, "__module__", "").startswith(room.__name__)
        ]  # fmt: skip
        yield from (f"{name}.{key}" for key in exported)


# The law ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    row: str
    seed: int
    what: str
    draw: Draw

    def __str__(self) -> str:
        return f"{self.row} seed {self.seed}: {self.what}  [{'; '.join(self.draw.log)}]"


def attempt(name: str, seed: int) -> Failure | str:
    """One call: how it broke the law, or "value" or "error"."""
    draw = Draw(seed)

    def failed(what: str) -> Failure:
        return Failure(name, seed, what, draw)

    torch.manual_seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = ROWS[name](draw)
            grads = gradients(out, draw.leaves)
    except (ValueError, TypeError) as error:
        if not ours(error.__traceback__):
            return failed(f"{type(error).__name__} from the depths: {last_line(error)}")
        return failed(f"refused though all is usual: {error}") if draw.clean else "error"
    except Exception as error:
        return failed(f"{type(error).__name__}: {last_line(error)}")
    if draw.nan:
        return failed(f"{draw.nan}=nan accepted")
    if any(not bool(torch.isfinite(value).all()) for value in floats(out)):
        return failed("value not finite")
    # Infinite is right where a gradient is larger than the type of its leaf, narrower than the loss, can hold.
    widest = max((value.dtype.itemsize for value in floats(out)), default=4)
    # bfloat16 reaches as far as float32, and not as far as float64.
    wide = [g for g in grads if g.dtype.itemsize >= max(widest, 4) or (g.dtype == torch.bfloat16 and widest <= 4)]
    if any(bool(grad.isnan().any()) for grad in grads) or any(bool(grad.isinf().any()) for grad in wide):
        return failed("gradient not finite")
    return "value"


def floats(out: Any) -> Iterator[Tensor]:
    if isinstance(out, Tensor):
        if out.is_floating_point():
            yield out
    elif isinstance(out, float):
        yield torch.tensor(out, dtype=torch.float64)
    elif isinstance(out, dict):
        yield from floats(list(out.values()))
    elif isinstance(out, list | tuple):
        for part in out:
            yield from floats(part)


def gradients(out: Any, leaves: list[Tensor]) -> list[Tensor]:
    values = [value for value in floats(out) if value.requires_grad]
    leaves = [leaf for leaf in leaves if leaf.requires_grad]
    if not values or not leaves:
        return []
    found = torch.autograd.grad(values, leaves, [torch.ones_like(value) for value in values], allow_unused=True)
    return [grad for grad in found if grad is not None]


def ours(trace: TracebackType | None) -> bool:
    """Whether the innermost frame is a `raise` in reglet, and not torch or Python at work."""
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return "/reglet/" in code.co_filename and dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def last_line(error: Exception) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/reglet/" in f.filename]
    where = f"{frames[-1].filename.rsplit('/reglet/')[-1]}:{frames[-1].lineno} " if frames else ""
    return where + (str(error).splitlines() or [""])[0][:160]


def sweep(calls: int, seed: int, only: str = "") -> tuple[Counter[str], list[Failure]]:
    """`calls` calls, the rows in turn.  What a row is called with does not depend on which others there are."""
    names = [name for name in ROWS if only in name]
    results, failures = Counter[str](), []
    for i in range(calls):
        name = names[i % len(names)]
        result = attempt(name, seed * 1_000_003 + zlib.crc32(name.encode()) + i // len(names))
        if isinstance(result, Failure):
            failures.append(result)
        else:
            results[result] += 1
    return results, failures


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--every", action="store_true", help="print every failure, and not one of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results, failures = sweep(arguments.calls, arguments.seed, arguments.only)
    kinds: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        kinds.setdefault((failure.row, failure.what[:60]), []).append(failure)
    for found in sorted(kinds.values(), key=lambda found: found[0].row):
        print(f"{len(found)} x {found[0]}" if not arguments.every else "\n".join(map(str, found)))
    print(f"{results['value']} values, {results['error']} errors, {len(failures)} failures of {len(kinds)} kinds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
