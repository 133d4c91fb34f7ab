"""Messages of the Pub/Sub protocol, generated from proto/pubsub_api.proto by scripts/generate-proto.

Reads from: nothing. Feeds: the Pub/Sub front end and client. Guarantee: the messages live in a descriptor pool of their
own, so a process may also load stubs made from the published proto file. Never does: I/O.
"""
