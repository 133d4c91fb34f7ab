"""SOQL: from text to something that can be run.

Reads from: query text and `tidewire.schema` (the catalog). Feeds: `records` (SQL for the store), `capture`
(predicates of push topics), front ends (error messages with row and column). Guarantee: the SQL and the
predicate of one condition pick the same records; whatever is not supported is refused, never read as
something else; no part of a query becomes part of SQL text or of generated source. Never does: I/O, clocks,
logging; it does not know who asks, only which fields a callback calls readable.
"""
