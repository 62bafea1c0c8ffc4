"""Few-shot adapters over the features of a frozen encoder."""

from reglet.networks.adapters.class_means import class_means as class_means
from reglet.networks.adapters.meta_adapter import MetaAdapter as MetaAdapter
from reglet.networks.adapters.tip_adapter import TipAdapter as TipAdapter
from reglet.networks.adapters.tip_adapter_f import TipAdapterF as TipAdapterF
