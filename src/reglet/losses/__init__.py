"""On the embeddings of views: complete objectives (XxxLoss) and view-free regularizers (Xxx).

Their maths as functions: barlow_twins, ntxent, vicreg_regularizers, smi_alignment, smi_redundancy, sliced_wasserstein,
visreg_center, visreg_scale, visreg_shape.
"""

from reglet.losses.barlow import BarlowTwinsLoss as BarlowTwinsLoss
from reglet.losses.barlow import barlow_twins as barlow_twins
from reglet.losses.bhep import BHEP as BHEP
from reglet.losses.directclr import DirectCLRLoss as DirectCLRLoss
from reglet.losses.emp_ssl import CodingRate as CodingRate
from reglet.losses.emp_ssl import EMPSSLLoss as EMPSSLLoss
from reglet.losses.frossl import FroSSL as FroSSL
from reglet.losses.frossl import FroSSLLoss as FroSSLLoss
from reglet.losses.invariance import WithInvariance as WithInvariance
from reglet.losses.koleo import KoLeo as KoLeo
from reglet.losses.mmcr import MMCRLoss as MMCRLoss
from reglet.losses.ntxent import NTXentLoss as NTXentLoss
from reglet.losses.ntxent import ntxent as ntxent
from reglet.losses.radial_vcreg import RadialVCReg as RadialVCReg
from reglet.losses.rectified_lpjepa import RDMReg as RDMReg
from reglet.losses.rectified_lpjepa import RectifiedLpJEPALoss as RectifiedLpJEPALoss
from reglet.losses.sigreg import LeJEPALoss as LeJEPALoss
from reglet.losses.sigreg import SIGReg as SIGReg
from reglet.losses.sigreg import epps_pulley as epps_pulley
from reglet.losses.smi import SMILoss as SMILoss
from reglet.losses.smi import smi_alignment as smi_alignment
from reglet.losses.smi import smi_redundancy as smi_redundancy
from reglet.losses.sub_jepa import SubspaceSIGReg as SubspaceSIGReg
from reglet.losses.swd import SWD as SWD
from reglet.losses.swd import SWDLoss as SWDLoss
from reglet.losses.swd import sliced_wasserstein as sliced_wasserstein
from reglet.losses.tico import TiCoLoss as TiCoLoss
from reglet.losses.vicreg import VICReg as VICReg
from reglet.losses.vicreg import VICRegLoss as VICRegLoss
from reglet.losses.vicreg import vicreg_regularizers as vicreg_regularizers
from reglet.losses.visreg import VISReg as VISReg
from reglet.losses.visreg import VISRegLoss as VISRegLoss
from reglet.losses.visreg import visreg_center as visreg_center
from reglet.losses.visreg import visreg_scale as visreg_scale
from reglet.losses.visreg import visreg_shape as visreg_shape
from reglet.losses.weak_sigreg import WeakSIGReg as WeakSIGReg
from reglet.losses.wmse import WMSELoss as WMSELoss
