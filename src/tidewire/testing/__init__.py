"""The public test kit: real servers for tests of clients.

    with LocalServer() as server:                  # in this process, or form="process"
        account_id = server.create("Account", Name="Acme")
        with server.listen("/data/AccountChangeEvent") as events:
            server.update("Account", account_id, Phone="1")
            events.wait_for(lambda event: "Phone" in event.data["payload"])
        server.reset()                             # back to the initial state

Under pytest, use the fixtures `tidewire_server` and `tidewire_org` of `tidewire.testing.plugin`.

Reads from: a server that it starts. Feeds: tests, ours and our users'. Guarantee: clients reach the whole server over
its sockets; both forms have the same calls. Never does: control a server of `tidewire serve`, which has no control
channel.
"""

from tidewire.testing.listener import Listener
from tidewire.testing.local_server import LocalServer
from tidewire.testing.process import READER_USERNAME, ServerProcess, choose_ports

__all__ = ["READER_USERNAME", "Listener", "LocalServer", "ServerProcess", "choose_ports"]
