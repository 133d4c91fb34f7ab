"""Stage 6: the protocols that clients speak, one package each.

Reads from: requests, and events as delivery hands them over. Feeds: clients. Guarantee: a client meets its
protocol's own words, also in failure, and nothing of ours behind them. Never does: know another front end, or
decide what a user may see.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(default: Any, help_text: str) -> Any:
    """Declare a setting as a field of a settings dataclass, see `tidewire.config`."""
    return field(default=default, metadata={"help": help_text})
