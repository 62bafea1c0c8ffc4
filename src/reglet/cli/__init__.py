"""`reglet pretrain | train | embed | export | list`, with arguments key=value named as in Python."""

from reglet.cli.dispatch import main as main
