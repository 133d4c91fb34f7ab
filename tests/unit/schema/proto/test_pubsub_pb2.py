"""The generated messages: up to date, and no obstacle to programs that load the published stubs as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tidewire.schema.proto import pubsub_pb2 as pb

ROOT = Path(__file__).parents[4]


def test_generated_messages_are_those_of_the_proto_file() -> None:
    check = subprocess.run([ROOT / "scripts" / "generate-proto", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


def test_same_message_names_in_the_default_pool_are_no_conflict() -> None:
    # A process of its own: what the default pool has once learned it cannot forget.
    program = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
import tidewire.schema.proto.pubsub_pb2 as ours
file = descriptor_pb2.FileDescriptorProto.FromString(ours.DESCRIPTOR.serialized_pb)
file.message_type[0].field.add(name="added", number=99, type=9, label=1)
descriptor_pool.Default().Add(file)
found = descriptor_pool.Default().FindMessageTypeByName("eventbus.v1.TopicInfo")
foreign = message_factory.GetMessageClass(found)
assert foreign is not ours.TopicInfo
sent = foreign(topic_name="/event/Order__e", added="x").SerializeToString()
print(ours.TopicInfo.FromString(sent).topic_name)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert (run.stdout, run.stderr) == ("/event/Order__e\n", "")


def test_default_pool_does_not_know_our_messages() -> None:
    assert pb.DESCRIPTOR.pool is not descriptor_pool.Default()


def test_fetch_request_of_the_first_generation_is_read() -> None:
    # Its field 5 was a number, `linger_ms`, and 6 the text that is 5 today.
    file = descriptor_pb2.FileDescriptorProto(name="first.proto", package="first", syntax="proto3")
    message = file.message_type.add(name="FetchRequest")
    for number, name, kind in (
        (1, "topic_name", 9),
        (4, "num_requested", 5),
        (5, "linger_ms", 5),
        (6, "refresh", 9),
    ):
        message.field.add(name=name, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    first = message_factory.GetMessageClass(pool.FindMessageTypeByName("first.FetchRequest"))
    sent = first(topic_name="/event/A__e", num_requested=7, linger_ms=100, refresh="r").SerializeToString()
    read = pb.FetchRequest.FromString(sent)
    assert (read.topic_name, read.num_requested, read.auth_refresh) == ("/event/A__e", 7, "")
