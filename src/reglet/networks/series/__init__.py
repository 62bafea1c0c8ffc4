"""Networks that reconstruct a window of a series: (n, length, channels) to the same shape.

Each is made by `Network(channels=, length=, width=)`.  Its `sim_blocks` are the default blocks for SIM.  A class has a
published size by default.  The function `..._small` beside it builds one that a CPU trains in seconds.
"""

from reglet.networks.series.itransformer import ITransformer, itransformer_small
from reglet.networks.series.lightts import LightTS, lightts_small
from reglet.networks.series.mambats import MambaTS, mambats_small
from reglet.networks.series.timesnet import TimesNet, timesnet_small

__all__ = [
    "ITransformer",
    "LightTS",
    "MambaTS",
    "TimesNet",
    "itransformer_small",
    "lightts_small",
    "mambats_small",
    "timesnet_small",
]
