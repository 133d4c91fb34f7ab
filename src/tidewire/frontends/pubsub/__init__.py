"""Stage 6, Pub/Sub: the gRPC service `eventbus.v1.PubSub` over HTTP/2.

Reads from: delivery's subscriptions and `CoreLink`. Feeds: gRPC clients, old and new stubs alike. Guarantee:
a response never holds more events than its client asked for, always says how far the log has been read, and
every failure carries a machine-readable code. Never does: build an event once per subscriber, or send a stack
trace.
"""
