"""On the embeddings of views: complete objectives (XxxLoss) and view-free regularizers (Xxx)."""

from reglet.losses.barlow import BarlowTwinsLoss as BarlowTwinsLoss
from reglet.losses.lejepa import LeJEPALoss as LeJEPALoss
from reglet.losses.ntxent import NTXentLoss as NTXentLoss
from reglet.losses.sigreg import SIGReg as SIGReg
from reglet.losses.smi import SMILoss as SMILoss
from reglet.losses.swd import SWD as SWD
from reglet.losses.swd import SWDLoss as SWDLoss
from reglet.losses.vicreg import VICRegLoss as VICRegLoss
from reglet.losses.visreg import VISReg as VISReg
from reglet.losses.visreg import VISRegLoss as VISRegLoss
