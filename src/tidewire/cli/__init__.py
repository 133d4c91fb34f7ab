"""The command line: `tidewire <command>`.

Reads from: flags, environment and files. Feeds: a person, on standard output. Guarantee: an error of ours is
a line, what to do about it, and a status, never a stack. Never does: a stage's work itself.
"""

from tidewire.cli.main import main

__all__ = ["main"]
