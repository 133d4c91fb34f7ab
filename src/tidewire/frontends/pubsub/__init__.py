"""Stage 6, Pub/Sub: the gRPC service `eventbus.v1.PubSub` over HTTP/2.

Reads from: delivery's subscriptions and `CoreLink`.
Feeds: gRPC clients, with old and new stubs.
Guarantee: a response never holds more events than its client requested, always carries the latest replay id, and every
failure carries a machine-readable code.
Never does: encode an event once per subscriber, or send a stack trace.
"""
