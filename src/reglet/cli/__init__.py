"""`reglet COMMAND key=value ...`, with arguments named as in Python; one file for each command."""

from reglet.cli.dispatch import main as main
