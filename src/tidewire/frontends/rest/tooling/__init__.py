"""The Tooling API: the org's types as records, by the same SOQL as data.

Objects here have no tables. Each is an entry of `objects.py`: a type for the binder, and a function that makes its rows
of what the caller may see. `query.py` answers queries over such rows in memory, `api.py` is the resources.
"""
