"""The public test kit: real servers for the tests of whatever talks to one.

    with LocalServer() as server:                  # in this process, or form="process"
        account_id = server.create("Account", Name="Acme")
        with server.listen("/data/AccountChangeEvent") as events:
            server.update("Account", account_id, Phone="1")
            events.wait_for(lambda event: "Phone" in event.data["payload"])
        server.reset()                             # as if it had just been started

Under pytest the fixtures `tidewire_server` and `tidewire_org` of `tidewire.testing.plugin` do the same.

Reads from: a server that it runs itself. Feeds: tests, ours and our users'. Guarantee: what a client meets is the
whole server, over its sockets; both forms offer the same calls. Never does: change a server that somebody else
runs: `tidewire serve` has no control channel.
"""

from tidewire.testing.listening import Listener
from tidewire.testing.local_server import LocalServer
from tidewire.testing.process import READER_USERNAME, ServerProcess, choose_ports

__all__ = ["READER_USERNAME", "Listener", "LocalServer", "ServerProcess", "choose_ports"]
