"""reglet in other people's frames.

    reglet.integrations.Penalty         plain torch, and what the others are made of
    reglet.integrations.lightning       callbacks: AttachLoss, WatchWithDoctor, OnlineProbes
    reglet.integrations.transformers    callbacks of its Trainer: AttachLoss, WatchWithDoctor
    reglet.integrations.accelerate      save_with: the heads beside the model in `save_state`

Each of the last three needs its library, and is imported by its own name.
"""

from reglet.integrations.penalty import Penalty as Penalty
