"""Networks with their objectives: wiring, no mathematics of embeddings."""

from reglet.methods.augself import AugSelf as AugSelf
from reglet.methods.byol import BYOL as BYOL
from reglet.methods.byol import SimSiam as SimSiam
from reglet.methods.dino import DINO as DINO
from reglet.methods.equimod import EquiMod as EquiMod
from reglet.methods.equivariant import Equivariant as Equivariant
from reglet.methods.equivariant_views import AlignedViews as AlignedViews
from reglet.methods.essl import ESSL as ESSL
from reglet.methods.heads import DINOHead as DINOHead
from reglet.methods.heads import normed_mlp as normed_mlp
from reglet.methods.joint_embedding import JointEmbedding as JointEmbedding
from reglet.methods.masked_tokens import MaskedTokens as MaskedTokens
from reglet.methods.mixed import Mixed as Mixed
from reglet.methods.moco import MoCoV3 as MoCoV3
from reglet.methods.momentum import Teacher as Teacher
from reglet.methods.momentum import half_cosine as half_cosine
from reglet.methods.next_embedding import NextEmbedding as NextEmbedding
from reglet.methods.partly import Partly as Partly
from reglet.methods.partly import freeze_all_but_last as freeze_all_but_last
from reglet.methods.predictive import Forecast as Forecast
from reglet.methods.predictive import Predictive as Predictive
from reglet.methods.preserved import Preserved as Preserved
from reglet.methods.regularized import Regularized as Regularized
from reglet.methods.stl import STL as STL
from reglet.methods.stl import PartnerViews as PartnerViews
from reglet.methods.supervised import Supervised as Supervised
