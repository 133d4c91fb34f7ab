"""Upkeep of a lake: folding history into bases, compaction, purge, audit, and reading records again."""
