"""SOQL: parses queries, binds them to the catalog, and compiles them to SQL and predicates.

Reads from: query text and `tidewire.schema` (the catalog). Feeds: `records` (SQL for the store), `capture`
(predicates of push topics), front ends (error messages with row and column). Guarantee: the SQL and the
predicate of one condition pick the same records; unsupported syntax is an error, never read as something
else; no part of a query becomes part of SQL text or of generated source. Never does: I/O, clocks,
logging; it knows the caller only as a `Caller` and by a callback that says which fields are readable.
"""
