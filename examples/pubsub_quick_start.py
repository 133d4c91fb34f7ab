"""The Pub/Sub guide's Python quick start against a server of your own: no library of ours, only generated stubs.

    pip install grpcio-tools avro requests
    python -m grpc_tools.protoc --proto_path=proto --python_out=. --grpc_python_out=. pubsub_api.proto
    tidewire serve --dev
    python examples/pubsub_quick_start.py subscribe /data/OpportunityChangeEvent
    python examples/pubsub_quick_start.py publish /event/Order_Event__e '{"Order_Number__c": "100"}'
    python examples/pubsub_quick_start.py subscribe /data/OpportunityChangeEvent --after 0001a2b3c4d5e6f70000

`subscribe` begins with new events, or after the event whose replay id it is given, and prints one line for each: its
replay id and its fields as JSON. The server is at TIDEWIRE_URL and TIDEWIRE_GRPC, its certificate at TIDEWIRE_CA.
"""

import argparse
import io
import json
import os
import threading
import time
from urllib.parse import urlsplit
from xml.etree import ElementTree

import avro.io
import avro.schema
import grpc
import pubsub_api_pb2 as pb2
import pubsub_api_pb2_grpc as pb2_grpc
import requests

LOGIN_URL = os.environ.get("TIDEWIRE_URL", "http://localhost:8080") + "/services/Soap/u/52.0/"
ENDPOINT = os.environ.get("TIDEWIRE_GRPC", "localhost:7443")
CERTIFICATE = os.environ.get("TIDEWIRE_CA", "data/server/tls/ca.pem")
USERNAME = "admin@tidewire.local"
PASSWORD = "tidewire"

LOGIN = """<soapenv:Envelope xmlns:soapenv='http://schemas.xmlsoap.org/soap/envelope/'
 xmlns:urn='urn:partner.soap.sforce.com'><soapenv:Body><urn:login>
 <urn:username><![CDATA[{username}]]></urn:username><urn:password><![CDATA[{password}]]></urn:password>
</urn:login></soapenv:Body></soapenv:Envelope>"""


def sign_in():
    """The metadata of every call: session, instance, and the tenant as core/<subdomain>/<org id>."""
    answer = requests.post(
        LOGIN_URL,
        data=LOGIN.format(username=USERNAME, password=PASSWORD),
        headers={"content-type": "text/xml", "SOAPAction": "login"},
        timeout=30,
    )
    answer.raise_for_status()
    tree = ElementTree.fromstring(answer.content)  # noqa: S314 - from a server that we trust with a password
    found = {node.tag.rpartition("}")[2]: node.text for node in tree.iter()}
    server = urlsplit(found["serverUrl"])
    subdomain = server.hostname.split(".")[0]
    return (
        ("x-sfdc-api-session-token", found["sessionId"]),
        ("x-sfdc-instance-url", f"{server.scheme}://{server.netloc}"),
        ("x-sfdc-tenant-id", f"core/{subdomain}/{found['organizationId']}"),
    )


class Schemas:
    """Avro schemas by id, asked for once."""

    def __init__(self, stub, metadata):
        self._stub = stub
        self._metadata = metadata
        self._known = {}

    def get(self, schema_id):
        """A parsed schema."""
        if schema_id not in self._known:
            info = self._stub.GetSchema(pb2.SchemaRequest(schema_id=schema_id), metadata=self._metadata)
            self._known[schema_id] = avro.schema.parse(info.schema_json)
        return self._known[schema_id]


def decode(schema, payload):
    """An event's fields."""
    return avro.io.DatumReader(schema).read(avro.io.BinaryDecoder(io.BytesIO(payload)))


def encode(schema, fields):
    """An event's bytes."""
    buffer = io.BytesIO()
    avro.io.DatumWriter(schema).write(fields, avro.io.BinaryEncoder(buffer))
    return buffer.getvalue()


def subscribe(stub, metadata, topic, after, count):
    """Print events until `count` have come, or for ever. One event is asked for at a time."""
    wanted = threading.Semaphore(1)
    schemas = Schemas(stub, metadata)

    def requests_for_events():
        while True:
            wanted.acquire()
            if after is None:
                yield pb2.FetchRequest(topic_name=topic, replay_preset=pb2.LATEST, num_requested=1)
            else:
                # Only the first request's replay options count, so they may be repeated.
                yield pb2.FetchRequest(
                    topic_name=topic, replay_preset=pb2.CUSTOM, replay_id=after, num_requested=1
                )

    for response in stub.Subscribe(requests_for_events(), metadata=metadata):
        for received in response.events:
            fields = decode(schemas.get(received.event.schema_id), received.event.payload)
            print(received.replay_id.hex(), json.dumps(fields), flush=True)
            count -= 1
            if count == 0:
                return
            wanted.release()
        if not response.events:
            print(f"# the subscription is active; latest {response.latest_replay_id.hex()}", flush=True)


def publish(stub, metadata, topic, fields):
    """Publish one event, and print its replay id or why there is none."""
    schema_id = stub.GetTopic(pb2.TopicRequest(topic_name=topic), metadata=metadata).schema_id
    schema = Schemas(stub, metadata).get(schema_id)
    system = {
        "CreatedDate": int(time.time()),  # noqa: TID251 - a client has a clock of its own
        "CreatedById": "005000000000001AAA",
    }
    event = {"id": "234", "schema_id": schema_id, "payload": encode(schema, {**system, **fields})}
    response = stub.Publish(pb2.PublishRequest(topic_name=topic, events=[event]), metadata=metadata)
    for result in response.results:
        print(result.replay_id.hex() if result.replay_id else f"# rejected: {result.error.msg}", flush=True)


def main():
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    subscribing = commands.add_parser("subscribe")
    subscribing.add_argument("topic")
    subscribing.add_argument("--after", type=bytes.fromhex, help="a replay id, as it was printed")
    subscribing.add_argument("--count", type=int, default=-1, help="stop after so many events")
    publishing = commands.add_parser("publish")
    publishing.add_argument("topic")
    publishing.add_argument("fields", type=json.loads, help="a JSON object")
    given = parser.parse_args()
    with open(CERTIFICATE, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    with grpc.secure_channel(ENDPOINT, credentials) as channel:
        stub = pb2_grpc.PubSubStub(channel)
        metadata = sign_in()
        if given.command == "subscribe":
            subscribe(stub, metadata, given.topic, given.after, given.count)
        else:
            publish(stub, metadata, given.topic, given.fields)


if __name__ == "__main__":
    main()
