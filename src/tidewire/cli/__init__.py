"""The command line: `tidewire <command>`.

Reads from: flags, environment and files. Feeds: standard output. Guarantee: a PlatformError is printed as one line
with a hint and an exit status, never as a stack trace. Never does: the work of a pipeline stage.
"""

from tidewire.cli.main import main

__all__ = ["main"]
