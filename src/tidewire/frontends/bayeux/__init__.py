"""Stage 6, the Streaming API: Bayeux over HTTP long polling, as CometD clients speak it.

Reads from: `delivery.Hub`, which it gives a JSON form of events. Feeds: the sockets of subscribers.
Guarantee: within one session each event of a channel is sent once, in log order; the session survives a gap
of the reconnect window. Never does: publish, hold more than one connect per client, or answer a Bayeux
failure with anything but HTTP 200.
"""
