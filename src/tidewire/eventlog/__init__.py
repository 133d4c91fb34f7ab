"""Stage 3: keep events in commit order for as long as their family is retained.

Reads from: capture and publishers, as drafts inside a storage transaction. Feeds: delivery, by position. Guarantee: an
event exists if and only if the transaction that caused it committed; positions rise in commit order and are never
reused. Never does: decide who may see an event. `log.py` is the contract, `sql_log.py` its implementation in the org's
own database, `backends.py` the list of implementations; no other package runs SQL on the log's tables.
"""
