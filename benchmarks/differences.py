"""Where papers, their authors' code and other libraries compute different things under one name, and what reglet does.

Read in the papers and in the sources of the versions named in `HEADING`; not run, except lightly.
"""

from dataclasses import dataclass

HEADING = ("loss", "what", "paper", "authors' code", "lightly 1.6.0", "others", "reglet (argument for the other)")


@dataclass(frozen=True)
class Difference:
    loss: str
    what: str
    paper: str
    code: str
    lightly: str
    others: str
    reglet: str


VISREG = [
    Difference(
        "VISReg",
        "shape and centre",
        "sums in the equations, means in Algorithm 1",
        "means",
        "means",
        "-",
        "means: the weights were tuned on them",
    ),
    Difference(
        "VISReg",
        "eps of the std",
        "beside sigma in one equation, no value",
        "1e-6, in the scale term too",
        "1e-4, in the normalisation only",
        "stable-pretraining: as the authors",
        "1e-6, in the scale term too (`eps`)",
    ),
    Difference(
        "VISReg",
        "term weights",
        "1:1:1, ratios in an ablation",
        "fixed 1:1:1",
        "three arguments",
        "stable-pretraining: three arguments",
        "`scale`, `shape`, `center`",
    ),
    Difference(
        "VISReg", "slices", "2048 or 4096", "256 in the class, 4096 in its settings", "4096", "256", "4096 (`slices`)"
    ),
    Difference(
        "VISReg",
        "several ranks",
        "slices differ between GPUs",
        "gathers; ranks seeded differently",
        "own samples unless asked; slices from the global generator, so one seed on all ranks means the same slices",
        "stable-pretraining: own samples",
        "`gather`; slices from a generator of its own, different on each rank (`shared_slices`)",
    ),
    Difference(
        "VISRegLoss",
        "invariance",
        "summed over features",
        "mean over views, samples and features; gradient through the centre",
        "as the authors' code; of each rank's own samples",
        "-",
        "as the authors' code; with `gather`, of all samples",
    ),
    Difference(
        "VISRegLoss",
        "lam",
        "0.9, 0.7 for ViT-L",
        "0.9, 0.8 for ViT-L",
        "0.9",
        "stable-pretraining: 0.02",
        "0.9 (`lam`)",
    ),
]

SLICED = [
    Difference(
        "SIGReg",
        "several ranks",
        "-",
        "the same slices everywhere, means reduced with gradient",
        "rank 0's slices; the number of samples is summed in the embeddings' dtype, so bfloat16 rounds it above 256",
        "stable-pretraining drops the reduced means but scales by the number of ranks; the VISReg authors gather, with "
        "different slices",
        "`gather`; the same slices, their work shared out (`shared_slices=False`: different ones)",
    ),
    Difference(
        "SIGReg", "slices", "-", "256 in the minimal example", "1024", "stable-pretraining: 1024", "1024 (`slices`)"
    ),
    Difference(
        "LeJEPALoss",
        "lam",
        "convex combination",
        "0.02 in the minimal example",
        "0.05",
        "stable-pretraining: invariance + lam SIGReg, views in one batch",
        "0.02 (`lam`), convex",
    ),
    Difference(
        "LeJEPALoss",
        "centre of the invariance",
        "global views",
        "all views, in the minimal example",
        "global views; asks for a local view",
        "-",
        "global views; all where none is local",
    ),
    Difference(
        "SWD, SWDLoss",
        "quantiles",
        "-",
        "built in the dtype of the embeddings: infinite in bfloat16 from n = 1000; clamped to [1e-4, 1 - 1e-4]",
        "-",
        "-",
        "built in float64, the same clamp (`clamp`)",
    ),
    Difference("SWD, SWDLoss", "length of a slice", "1", "w / (\\|w\\| + 1e-6)", "-", "-", "1"),
]

BETWEEN = [
    Difference(
        "VICRegLoss",
        "invariance",
        "summed over features",
        "mean over features",
        "mean over features",
        "solo-learn: mean",
        'mean (`variant="paper"`: summed)',
    ),
    Difference(
        "VICRegLoss",
        "variance of the two views",
        "summed",
        "averaged",
        "averaged",
        "solo-learn: summed",
        'averaged (`variant="paper"`, `"solo"`: summed)',
    ),
    Difference(
        "VICRegLoss",
        "covariance of the two views",
        "summed",
        "summed",
        "summed",
        "VISReg's comparison: all views in one batch, hinge squared, no invariance",
        'summed (`variant="visreg"`)',
    ),
    Difference(
        "VICReg",
        "what it is",
        "what L has of one view: 25 v(Z) + c(Z)",
        "25 v(Z) / 2 + c(Z) for each of two views",
        "as the code",
        "-",
        "as the paper (`variance`, `covariance`)",
    ),
    Difference(
        "WeakSIGReg",
        "divisor of the covariance",
        "-",
        "n - 1 + 1e-6 (kreasof-ai/sigreg, README)",
        "-",
        "-",
        "n - 1",
    ),
    Difference(
        "SubspaceSIGReg",
        "slices of the subspaces",
        "-",
        "each subspace draws its own (intcomp/Sub-JEPA)",
        "-",
        "-",
        "the same for all, in the coordinates of each",
    ),
    Difference(
        "SubspaceSIGReg",
        "features that K does not divide",
        "-",
        "refused",
        "-",
        "-",
        "subspaces of d / K features, rounded down (`subspace_dim`)",
    ),
    Difference(
        "RectifiedLpJEPALoss, RDMReg",
        "samples of the target",
        "-",
        "each view draws its own (YilunKuang/rectified-lp-jepa)",
        "-",
        "-",
        "one draw a step for all views, from (seed, step)",
    ),
    Difference(
        "RectifiedLpJEPALoss, RDMReg",
        "the ReLU",
        "-",
        "the projector's last layer",
        "-",
        "-",
        "in the loss; after a projector that has one it changes nothing",
    ),
    Difference(
        "RectifiedLpJEPALoss",
        "weight of the distance",
        "-",
        "125; 250 for a ResNet on CIFAR-100",
        "-",
        "-",
        "125 (`weight`)",
    ),
    Difference(
        "BHEP",
        "samples",
        "standardized, times n",
        "-",
        "-",
        "R's mnt as the paper",
        "as they are, not times n",
    ),
    Difference("BHEP", "beta", "-", "-", "-", "R's mnt: 1", "1 / sqrt(d) (`beta`)"),
    Difference(
        "RadialVCReg",
        "weights",
        "-",
        "25, 1, 100, 100 by default; 1, 1, 100, 100 in the README, for points in the plane",
        "-",
        "-",
        "25, 1, 100, 100 (`variance`, `covariance`, `cross_entropy`, `entropy`)",
    ),
    Difference(
        "BarlowTwinsLoss",
        "weight of the off-diagonal",
        "0.005",
        "0.0051",
        "0.005",
        "solo-learn: 0.0051, and 0.025 times the whole",
        "0.0051 (`weight`)",
    ),
    Difference(
        "BarlowTwinsLoss",
        "several ranks",
        "-",
        "statistics over all ranks; the matrix is summed in place, which leaves 1/W of the gradient",
        "each rank's statistics; the matrix is summed with gradient",
        "solo-learn: each rank's statistics, summed in place",
        "`gather`: statistics and gradient of the whole batch",
    ),
    Difference(
        "BarlowTwinsLoss",
        "std",
        "biased",
        "biased, eps 1e-5 under the root",
        "as the authors",
        "VISReg's comparison: unbiased, 1e-6 added, neighbouring views only",
        'as the authors (`variant="visreg"`)',
    ),
    Difference("NTXentLoss", "temperature", "0.5 on CIFAR-10, 0.1 on ImageNet", "-", "0.5", "-", "0.5 (`temperature`)"),
    Difference(
        "NTXentLoss",
        "more than two views",
        "-",
        "-",
        "two only",
        "solo-learn: all positives summed inside the logarithm",
        "mean over pairs of views",
    ),
    Difference(
        "KoLeo",
        "eps",
        "none",
        "1e-8, in the differences too (DINOv2)",
        "1e-8, in the differences too",
        "-",
        "1e-8 beside the distance (`eps`)",
    ),
    Difference(
        "MMCRLoss",
        "length of a row",
        "1",
        "1",
        "as it is: then the loss has no minimum",
        "-",
        "1 (`normalize=False`: as it is)",
    ),
    Difference(
        "FroSSL, FroSSLLoss",
        "one view",
        "-",
        "-",
        "two at least, their regularizers summed",
        "-",
        "`FroSSLLoss` as lightly; `FroSSL` is the regularizer alone, its mean over views",
    ),
    Difference(
        "EMPSSLLoss, CodingRate",
        "sign of the coding rate",
        "maximised",
        "maximised",
        "+R is added to what is minimised",
        "-",
        "maximised",
    ),
    Difference(
        "EMPSSLLoss, CodingRate",
        "length of a row, eps",
        "1; eps squared",
        "1; eps = 0.2, not squared",
        "as it is; 0.2, not squared",
        "-",
        "1 (`normalize=False`: as it is); 0.2, not squared (`eps`)",
    ),
    Difference(
        "WMSELoss",
        "what is whitened together",
        "sub-batches, drawn anew",
        "w_size 128 of the batch, drawn anew",
        "w_size 256 of the batch, drawn anew; running statistics in eval mode",
        "-",
        "the whole batch",
    ),
    Difference("WMSELoss", "eps", "-", "0", "0", "-", "1e-4 (`eps`)"),
    Difference(
        "TiCoLoss",
        "whose covariance",
        "-",
        "-",
        "of the first argument; the second is of a slow copy",
        "-",
        "of all views alike",
    ),
    Difference("DirectCLRLoss", "features", "-", "-", "64", "-", "64 (`dims`)"),
    Difference(
        "SMILoss",
        "form, weight, eps, reduction",
        "left open",
        "none published",
        "-",
        "-",
        "squares, 0.1, 1e-6, divided by n (`on`, `off`, `weight`, `eps`, `reduction`)",
    ),
]

PREDICTION = [
    Difference(
        "LeWM",
        "gradient through the target",
        "yes: no stop-gradient",
        "yes",
        "no, although its text says that none is stopped",
        "-",
        "yes (`Predictive(detach=True)`)",
    ),
    Difference(
        "LeWM",
        "weight of SIGReg",
        "0.1",
        "0.09",
        "0.1",
        "-",
        "0.1 (`weight`)",
    ),
]

DIFFERENCES = [*VISREG, *SLICED, *BETWEEN, *PREDICTION]
