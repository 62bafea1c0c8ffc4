"""docs/choose.md's table: a situation, its baseline, and whether what was tried beyond that is shown to help.

Situations and names are typed here.  What helps, by how much and at what cost follows from the summaries: a regularizer
helps where the interval of its difference excludes zero on its side, and is recommended nowhere else.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reglet.runs import ClaimVerdict
from reglet.runs.verdict import in_words

Json = dict[str, Any]
HELPS = ("holds", "smaller")


@dataclass(frozen=True)
class Choice:
    """tried: what was put on the baseline, or in its place.  claim: a pattern of the one claim that decides."""

    situation: str
    baseline: str
    tried: str
    recipe: str
    claim: str


CHOICES = (
    Choice("images without labels", "`method=barlow`", "`method=smi`", "smi_batch_size", "at batch 256"),
    Choice(
        "images without labels, **a long tail** of classes",
        "`method=visreg`",
        "four times the weight of shape",
        "visreg_digits",
        "^shape 4:1$",
    ),
    Choice(
        "no labels, features that **follow turns**",
        "`method=visreg`",
        "[SER](ser.md) on top (`equivariant=ser`)",
        "ser_bases",
        "turns better on VISReg",
    ),
    Choice(
        "**few labels**",
        "cross-entropy",
        "[SIM](sim.md) with 5 % of the gradient",
        "sim_small_labels",
        "5 % of the gradient helps",
    ),
    Choice(
        "**several domains**, one unseen",
        "`loss=erm`",
        "[LatentDR](latentdr.md) with pooling",
        "rotated_digits",
        "LatentDR (Pool|with pooling)(?!.*half)",
    ),
    Choice("labels, **a long tail**", "balanced softmax", "LatentDR on top", "long_tail", "LatentDR"),
    Choice("**medical** images", "cross-entropy", "LatentDR with pooling", "medical", "LatentDR.*[Pp]ool"),
    Choice(
        "**few shots**, pretrained features",
        "Tip-Adapter-F",
        "SIM on the adapter",
        "few_shot_adapters",
        "(?i)tip-adapter-f",
    ),
    Choice("**anomalies** in series", "iTransformer", "SIM on its blocks", "anomaly_sim", "iTransformer on SMD"),
)


def choices(found: Sequence[Json], rows: Sequence[Choice] = CHOICES) -> str:
    """The table.  found: all summaries."""
    lines = ["| you have | baseline | what helps | by how much, 95 % | time | verdict |", "|" + "---|" * 6]
    by_name = {summary["recipe"]: summary for summary in found}
    for choice in rows:
        if choice.recipe not in by_name:
            lines.append(f"| {choice.situation} | {choice.baseline} | not measured: {choice.tried} |  |  |  |")
            continue
        claim = next(c for c in by_name[choice.recipe]["claims"] if re.search(choice.claim, c["claim"]))
        o = claim["ours"]
        helps = f"**{choice.tried}**" if claim["verdict"] in HELPS else f"nothing shown; tried: {choice.tried}"
        ours = f"{o['mean']:+.3g} ({o['low']:+.3g} to {o['high']:+.3g}), {o['n']} seeds"
        cost = "" if claim["cost"] is None else f"{claim['cost']:.2g} x"
        said = in_words(ClaimVerdict(claim["verdict"], claim["why"], claim["seeds_needed"]))
        link = f"[{choice.recipe}](reproduction.md#{choice.recipe})"
        lines.append(f"| {choice.situation} | {choice.baseline} | {helps} | {ours} | {cost} | {said} ({link}) |")
    return "\n".join(lines)
