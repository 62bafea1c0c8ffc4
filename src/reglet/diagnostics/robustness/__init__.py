"""What a network withstands: corruptions, small changes from frame to frame, other domains."""

from reglet.diagnostics.robustness.corruptions import CORRUPTIONS as CORRUPTIONS
from reglet.diagnostics.robustness.corruptions import SEVERITIES as SEVERITIES
from reglet.diagnostics.robustness.corruptions import corrupt as corrupt
from reglet.diagnostics.robustness.domains import DomainShift as DomainShift
from reglet.diagnostics.robustness.domains import domain_shift as domain_shift
from reglet.diagnostics.robustness.perturbations import PERTURBATIONS as PERTURBATIONS
from reglet.diagnostics.robustness.perturbations import frames_of as frames_of
from reglet.diagnostics.robustness.score import Robustness as Robustness
from reglet.diagnostics.robustness.score import Stability as Stability
from reglet.diagnostics.robustness.score import correct_under_corruption as correct_under_corruption
from reglet.diagnostics.robustness.score import flip_rate as flip_rate
from reglet.diagnostics.robustness.score import robustness as robustness
from reglet.diagnostics.robustness.score import stability as stability
