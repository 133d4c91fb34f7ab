"""Stage 3: keep events, in commit order, for as long as their family is kept.

Reads from: capture and publishers, as drafts inside a storage transaction. Feeds: delivery, by position.
Guarantee: an event exists exactly when
the transaction that caused it does; positions rise in commit order and are never given out twice. Never does:
decide who may see an event.
"""
