"""The tests' store: tests/contract/crm runs the same ones on PostgreSQL."""

from __future__ import annotations

from tests.unit.records.conftest import place

__all__ = ["place"]
