"""Metadata: the org's types and permissions as components of the Metadata and Tooling APIs.

Components are plain mappings from element names to text, numbers, booleans, lists and mappings; front ends parse and
render them. A change becomes an org definition (`gate/definitions`), applied in one transaction; only a rename changes
types directly. `registry.py` lists the types of components, `service.py` handles single ones, `deploy.py` and
`retrieve.py` whole packages.
"""
