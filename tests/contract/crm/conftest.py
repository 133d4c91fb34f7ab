"""Rules of standard objects in PostgreSQL: the scenarios that tests/unit/crm runs on SQLite."""

from __future__ import annotations

from tests.contract.records.conftest import place

__all__ = ["place"]
