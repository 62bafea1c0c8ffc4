"""How good embeddings are: what a linear classifier reads from them, or how far an anomaly lies from the normal."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.probes import linear_probe
from reglet.probes.metrics import multilabel_auroc
from reglet.tasks.series_ssl.series import Series

STRENGTH = 1e-2  # of the linear probe's penalty: one for all arms, chosen on none of them


def score(train: Float[Tensor, "n d"], test: Float[Tensor, "m d"], data: Series, *, neighbours: int) -> float:
    """Of clips the accuracy of a linear probe; of machines the AUROC of distances, averaged over machines."""
    if not data.watched:
        return linear_probe(train, data.y_train, test, data.y_test, strengths=(STRENGTH,)).accuracy
    far = test.new_empty(len(test))
    for i in data.group_test.unique():
        mine = data.group_test == i
        far[mine] = knn_distance(train[data.group_train == i], test[mine], k=neighbours)
    return area_of_machines(far, data)


def area_of_machines(far: Float[Tensor, " m"], data: Series) -> float:
    """The AUROC of a number for each test window, averaged over the machines that have anomalies."""
    areas = []
    for i in data.group_test.unique():
        mine = data.group_test == i
        truth = data.y_test[mine].bool()
        if bool(truth.any()) and not bool(truth.all()):
            areas.append(multilabel_auroc(far[mine, None], truth[:, None]))
    return sum(areas) / len(areas)


@torch.no_grad()
def knn_distance(bank: Float[Tensor, "n d"], x: Float[Tensor, "m d"], *, k: int) -> Float[Tensor, " m"]:
    """The mean Euclidean distance to the k nearest of `bank`.

    >>> knn_distance(torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([[2.0]]), k=2)
    tensor([1.5000])
    """
    if k > len(bank):
        raise ValueError(f"neighbours={k} are more than the {len(bank)} training windows")
    # the exact difference, not its expansion by squares: collapsed embeddings differ in their last digits
    return torch.cat(
        [
            torch.cdist(part, bank, compute_mode="donot_use_mm_for_euclid_dist").topk(k, largest=False).values.mean(1)
            for part in x.split(256)
        ]
    )
