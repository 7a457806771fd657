"""The command line: ``dpfit --help``."""

from dpfit.cli.app import main

__all__ = ["main"]
