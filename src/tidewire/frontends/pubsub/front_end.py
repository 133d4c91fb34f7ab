"""What the server needs to serve the Pub/Sub API; see `tidewire.delivery.front_end`."""

from __future__ import annotations

from tidewire.delivery.front_end import EdgeApp, EdgeContext, EdgeSide, FrontEnd


def _load_edge() -> EdgeSide:
    from tidewire.frontends.pubsub.listener import open_listener
    from tidewire.frontends.pubsub.serve import PubSubApp
    from tidewire.frontends.pubsub.settings import PubSubSettings

    def open_app(context: EdgeContext) -> EdgeApp:
        settings = PubSubSettings.from_options(context.settings)
        app = PubSubApp(context.link, context.hub, context.clock, settings)
        return EdgeApp(app.end_streams, calls=app)

    return EdgeSide(open_app, open_listener=open_listener)


FRONT_END = FrontEnd("pubsub", addresses=("grpc", "grpc_tls"), load_edge=_load_edge)
