"""The Tooling API: the org's types as records, queried with SOQL like data.

Objects here have no tables. Each is an entry of `objects.py`: a type for the binder, and a function that builds its
rows from what the caller may see. `query.py` runs queries over such rows in memory, `api.py` has the resources.
"""
