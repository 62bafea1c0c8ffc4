"""Training on several domains for one that was never seen: losses, batches, splits, selection."""

from reglet.methods.domains.base import OnDomains as OnDomains
from reglet.methods.domains.batches import Batches as Batches
from reglet.methods.domains.coral import CORAL as CORAL
from reglet.methods.domains.coral import coral as coral
from reglet.methods.domains.erm import ERM as ERM
from reglet.methods.domains.groupdro import GroupDRO as GroupDRO
from reglet.methods.domains.irm import IRM as IRM
from reglet.methods.domains.irm import irm_penalty as irm_penalty
from reglet.methods.domains.method import DomainLoss as DomainLoss
from reglet.methods.domains.method import Domains as Domains
from reglet.methods.domains.mmd import MMD as MMD
from reglet.methods.domains.mmd import mmd as mmd
from reglet.methods.domains.protocol import Split as Split
from reglet.methods.domains.protocol import by_domain as by_domain
from reglet.methods.domains.protocol import leave_out as leave_out
from reglet.methods.domains.selection import Choice as Choice
from reglet.methods.domains.selection import leave_one_domain_out as leave_one_domain_out
from reglet.methods.domains.selection import oracle as oracle
from reglet.methods.domains.selection import training_domain as training_domain
from reglet.methods.domains.union import OnUnion as OnUnion
from reglet.methods.domains.vrex import VREx as VREx
