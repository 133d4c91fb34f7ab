"""Stage 5: every subscriber gets the events of its channel, in order, at its own pace.

Reads from: committed batches and log pages, both through `link.CoreLink`. Feeds: the front ends, which own
the sockets. Guarantee: a subscription sees every event of its channel after its starting position exactly
once and in order, redacted to what its user may see at that moment. Never does: block the loop, queue without
limit for one subscriber, or touch the database.
"""
