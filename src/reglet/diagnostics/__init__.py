"""Features in, numbers out: what a representation is like, and what it withstands.

Each function needs torch and numpy only, except where its name says so: t-SNE and the matching of components want
scikit-learn and scipy, JPEG wants Pillow, and they say which extra brings them.
"""

from reglet.diagnostics.alignment import alignment as alignment
from reglet.diagnostics.alignment import class_alignment as class_alignment
from reglet.diagnostics.alignment import uniformity as uniformity
from reglet.diagnostics.batch_dependence import batch_share as batch_share
from reglet.diagnostics.batch_dependence import mode_gap as mode_gap
from reglet.diagnostics.cka import cka_matrix as cka_matrix
from reglet.diagnostics.cka import linear_cka as linear_cka
from reglet.diagnostics.collapse import covariance_rank as covariance_rank
from reglet.diagnostics.collapse import noise_rank as noise_rank
from reglet.diagnostics.collapse import relative_spread as relative_spread
from reglet.diagnostics.collapse import same_image_auc as same_image_auc
from reglet.diagnostics.equivariance import Agreement as Agreement
from reglet.diagnostics.equivariance import agreement as agreement
from reglet.diagnostics.equivariance import equivariance as equivariance
from reglet.diagnostics.equivariance import standard_transforms as standard_transforms
from reglet.diagnostics.layers import layer_maps as layer_maps
from reglet.diagnostics.maps import as_colours as as_colours
from reglet.diagnostics.maps import energy_maps as energy_maps
from reglet.diagnostics.maps import match_components as match_components
from reglet.diagnostics.maps import pca_maps as pca_maps
from reglet.diagnostics.neighbours import AcrossDomains as AcrossDomains
from reglet.diagnostics.neighbours import nearest as nearest
from reglet.diagnostics.neighbours import neighbours_across_domains as neighbours_across_domains
from reglet.diagnostics.neighbours import tsne as tsne
from reglet.diagnostics.ranks import alpha_req as alpha_req
from reglet.diagnostics.ranks import lidar as lidar
from reglet.diagnostics.ranks import rankme as rankme
from reglet.diagnostics.spectrum import effective_rank as effective_rank
from reglet.diagnostics.spectrum import eigenspectrum as eigenspectrum
from reglet.diagnostics.spectrum import explained_variance as explained_variance
from reglet.diagnostics.spectrum import feature_std as feature_std
from reglet.diagnostics.training import Correlation as Correlation
from reglet.diagnostics.training import Spikes as Spikes
from reglet.diagnostics.training import cross_correlation as cross_correlation
from reglet.diagnostics.training import gradient_norms as gradient_norms
from reglet.diagnostics.training import gradient_spikes as gradient_spikes
from reglet.diagnostics.training import loss_accuracy_correlation as loss_accuracy_correlation
from reglet.diagnostics.training import redundancy_to_alignment as redundancy_to_alignment
from reglet.diagnostics.training import same_slices as same_slices
from reglet.diagnostics.transform_prediction import predict_flip as predict_flip
from reglet.diagnostics.transform_prediction import predict_rotation as predict_rotation
from reglet.diagnostics.verdict import Symptoms as Symptoms
from reglet.diagnostics.verdict import Verdict as Verdict
from reglet.diagnostics.verdict import diagnose as diagnose
