"""Anomalies in series of many channels: what a network that learned the normal cannot reconstruct."""

from reglet.tasks.anomaly.config import AnomalyConfig
from reglet.tasks.anomaly.detection import adjusted, detection, threshold
from reglet.tasks.anomaly.machines import Machine, Machines
from reglet.tasks.anomaly.task import TASK

__all__ = ["TASK", "AnomalyConfig", "Machine", "Machines", "adjusted", "detection", "threshold"]
