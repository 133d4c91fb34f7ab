"""Messages of the Pub/Sub protocol and of two services that gRPC tools use, generated from proto/ by scripts/generate-proto.

Reads from: nothing. Feeds: the Pub/Sub front end and client. Guarantee: the messages live in a descriptor pool of their
own, so a process may also load stubs made from the published proto file. Never does: I/O.
"""
