"""Networks with their objectives: wiring, no mathematics of embeddings."""

from reglet.methods.byol import BYOL as BYOL
from reglet.methods.byol import SimSiam as SimSiam
from reglet.methods.dino import DINO as DINO
from reglet.methods.heads import DINOHead as DINOHead
from reglet.methods.heads import normed_mlp as normed_mlp
from reglet.methods.joint_embedding import JointEmbedding as JointEmbedding
from reglet.methods.moco import MoCoV3 as MoCoV3
from reglet.methods.momentum import Teacher as Teacher
from reglet.methods.momentum import half_cosine as half_cosine
from reglet.methods.regularized import Regularized as Regularized
from reglet.methods.supervised import Supervised as Supervised
