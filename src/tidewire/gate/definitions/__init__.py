"""Org definitions: compare a document with the org, plan the changes, and apply them in one transaction.

Idempotent: only what the document names is compared, and what already matches is left alone. Nothing is removed except
by the section `remove`. Each module handles one section or one concern; `document.py` reads values and rejects wrong
ones, `plan.py` has the steps, `apply.py` puts the sections in order.
"""
