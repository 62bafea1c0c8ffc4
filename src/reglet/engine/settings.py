"""The settings of the loop, by the names of the command line."""

from dataclasses import dataclass, field, fields
from typing import ClassVar, TypeVar

from reglet.engine.optim import OPTIMIZERS, SCHEDULES

T = TypeVar("T")

# A resumed run may change these and still be the same run.
FREE = frozenset(
    {"out", "resume", "devices", "nodes", "strategy", "accelerator", "save_every", "log_every", "knn_every", "loggers"}
    | {"workers", "read_ahead", "doctor", "require"}
)


def option(default: T, says: str, *choices: T) -> T:
    """A field with the sentence that `--help` prints, and its possible values if they can be listed."""
    return field(default=default, metadata={"help": says, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything random in a run is a function of `seed` and of the step."""

    left_open: ClassVar[tuple[str, ...]] = ()  # fields that may be 0: their value is chosen when the data are known

    out: str = option("runs/run", "directory of the run: configuration, metrics, checkpoint, encoder")
    epochs: int = option(100, "passes over the data")
    steps: int = option(0, "optimizer steps, instead of epochs; 0: epochs decide")
    batch: int = option(256, "images per optimizer step, over all devices")
    micro_batch: int = option(0, "images at a time on a device, with the exact gradient of the batch; 0: all at once")
    accumulate: int = option(1, "parts of the batch that have separate losses, which are averaged")
    optimizer: str = option("adamw", ", ".join(OPTIMIZERS), *OPTIMIZERS)
    momentum: float = option(0.9, "of sgd and lars; the first beta of adam and adamw")
    lr: float = option(1e-3, "largest learning rate; it is not scaled by the batch")
    weight_decay: float = option(0.05, "of matrices and kernels; norms, biases and other vectors have none")
    warmup: float = option(0.1, "share of the steps during which the learning rate rises")
    schedule: str = option(
        "cosine", "learning rate after the warm-up: cosine, half (its second half falls), constant", *SCHEDULES
    )
    layer_decay: float = option(1.0, "factor of the rate from each backbone block to the one before it; 1: none")
    clip: float = option(0.0, "largest norm of the gradient, without the heads of block losses; 0: none")
    ema: float = option(0.0, "decay of a moving average of the weights, which is then the encoder; 0: none")
    precision: str = option(
        "32-true", "32-true, bf16-mixed, 16-mixed or bf16-true", "32-true", "bf16-mixed", "16-mixed", "bf16-true"
    )
    matmul_precision: str = option(
        "highest", "of float32 products: highest, high (TF32 on CUDA) or medium", "highest", "high", "medium"
    )
    deterministic: bool = option(False, "the same bits each time on CUDA, by slower kernels; a CPU has them anyway")
    compile: bool = option(False, "torch.compile the method")
    checkpoint_activations: bool = option(False, "save memory: compute the inside of each block twice")
    channels_last: bool = option(True, "memory layout in which convolutions are faster")
    sync_batchnorm: bool = option(False, "batch norm over the samples of all devices together")
    workers: int = option(0, "threads that decode image files; 0: one for each CPU that the process may use")
    read_ahead: int = option(2, "batches that are read ahead while training")
    seed: int = option(0, "of weights, order of the data, views and dropout")
    accelerator: str = option("auto", "auto, cpu, cuda or mps", "auto", "cpu", "cuda", "mps")
    devices: int = option(1, "processes on this machine, one per device")
    nodes: int = option(1, "machines, when started by torchrun")
    strategy: str = option("ddp", "ddp, or fsdp to split the weights over the devices", "ddp", "fsdp")
    save_every: int = option(500, "steps between checkpoints; there is always one at the end")
    log_every: int = option(10, "steps between lines of metrics.jsonl")
    knn_every: int = option(1, "epochs between online kNN scores, where the data have labels; 0: none")
    keep_best: str = option("", "keep the weights with the best rankme, lidar, alphareq or knn beside the last ones")
    best_every: int = option(1, "epochs between two scores for keep_best")
    patience: int = option(0, "stop after so many scores without a better one; 0: never")
    doctor: str = option(
        "off", "during training: warn or stop when the embeddings are surely sick; off", "off", "warn", "stop"
    )
    loggers: str = option("", "besides metrics.jsonl: tensorboard, wandb or tensorboard,wandb")
    resume: bool = option(False, "continue the run in `out`, to the same bits as if it had never stopped")
    init_from: str = option(
        "", "start from these weights: encoder.safetensors, a run, hf/NAME or a folder of transformers"
    )

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "accumulate", "devices", "nodes", "save_every", "log_every", "best_every"):
            if getattr(self, name) < (0 if name in self.left_open else 1):
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in (
            "steps",
            "micro_batch",
            "lr",
            "weight_decay",
            "clip",
            "knn_every",
            "patience",
            "seed",
            "workers",
            "read_ahead",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("warmup", "ema", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a share between 0 and 1, got {getattr(self, name)}")
        for f in fields(self):
            if (choices := f.metadata.get("choices")) and getattr(self, f.name) not in choices:
                raise ValueError(f"{f.name} is one of {', '.join(choices)}; got {getattr(self, f.name)!r}")
        if unknown := set(filter(None, self.loggers.split(","))) - {"tensorboard", "wandb"}:
            raise ValueError(f"loggers are tensorboard and wandb; got {', '.join(sorted(unknown))}")
        self._check_together()

    def _check_together(self) -> None:
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is a factor in (0, 1], got {self.layer_decay}")
        if self.patience and not self.keep_best:
            raise ValueError("patience= waits for a better score: say which by keep_best=")
        if self.layer_decay != 1 and self.strategy == "fsdp":
            raise ValueError("layer_decay= needs single weights, which fsdp puts together: take ddp")
        if self.compile and self.matmul_precision != "highest":
            raise ValueError(
                "a compiled method has one precision for all products, and losses need the highest: "
                "matmul_precision=high goes without compile=true"
            )
        if self.micro_batch and self.accumulate > 1:
            raise ValueError("micro_batch= and accumulate= are two ways to split the batch: give one of them")
        if self.batch % (self.devices * self.nodes * self.accumulate):
            raise ValueError(
                f"batch {self.batch} is not a multiple of devices x nodes x accumulate "
                f"= {self.devices} x {self.nodes} x {self.accumulate}"
            )
        if self.strategy == "fsdp" and self.precision == "16-mixed":
            raise ValueError("16-mixed needs scaled gradients, which fsdp does not have: take bf16-mixed")
        if self.strategy == "fsdp" and self.ema:
            raise ValueError("ema= keeps a whole copy of the weights on every device, which fsdp avoids: take ddp")
