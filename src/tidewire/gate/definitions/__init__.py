"""Org definitions, applied: compare a document with the org, show the plan, make it so in one transaction.

Idempotent: what is already as the document says is left alone, and only what a document names is compared.
Nothing is removed except by the section `remove`. `gate/definitions/custom_fields.py` reads fields; each module here
handles one section or concern, and `apply.py` puts them in order.
"""
