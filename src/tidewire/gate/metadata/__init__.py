"""Metadata: the org's types and permissions in the words of the Metadata and Tooling APIs.

Reads what the org has and what the front ends parsed, both as plain mappings from element names to text, numbers,
truths, lists and mappings. What is to change becomes an org definition (`access/definitions`), applied in one
transaction; nothing here writes a type by itself, except a rename. `registry.py` lists the types of components,
`service.py` answers calls for single ones, `deploy.py` and `retrieve.py` whole packages.
"""
