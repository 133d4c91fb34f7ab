"""The gRPC reflection service, which lists the listener's services and their messages for tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tidewire.errors import BodyMalformed
from tidewire.frontends.pubsub.wire import parse_message
from tidewire.schema.proto import health_pb2, pubsub_pb2, reflection_pb2

REFLECTION_NAMES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")


class Reflection:
    """Answers reflection requests. `service_names` are the Pub/Sub API's names, newest first."""

    def __init__(self, service_names: tuple[str, ...]) -> None:
        files = [_with_names(_file_of(pubsub_pb2), service_names), _file_of(health_pb2)]
        files += [_moved(_file_of(reflection_pb2), *_PACKAGES[:1], package) for package in _PACKAGES]
        self._by_name = {file.name: file.SerializeToString() for file in files}
        self._by_symbol = {symbol: file.name for file in files for symbol in _symbols(file)}
        self._services = [f"{file.package}.{service.name}" for file in files for service in file.service]

    def handlers(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the reflection services with their methods."""
        method = grpc.stream_stream_rpc_method_handler(self._answer_stream)
        return [(name, {"ServerReflectionInfo": method}) for name in REFLECTION_NAMES]

    async def _answer_stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for body in requests:
            try:
                request = parse_message(reflection_pb2.ServerReflectionRequest, body)
            except BodyMalformed as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
                raise
            yield self.answer(request).SerializeToString()

    def answer(
        self, request: reflection_pb2.ServerReflectionRequest
    ) -> reflection_pb2.ServerReflectionResponse:
        """Answer one request; an unknown symbol is answered with an error message."""
        response = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        match request.WhichOneof("message_request"):
            case "list_services":
                response.list_services_response.service.extend(
                    reflection_pb2.ServiceResponse(name=name) for name in self._services
                )
            case "file_by_filename":
                self._give_file(response, request.file_by_filename)
            case "file_containing_symbol":
                self._give_file(response, self._by_symbol.get(request.file_containing_symbol, ""))
            case "all_extension_numbers_of_type" if request.all_extension_numbers_of_type in self._by_symbol:
                response.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
            case _:
                self._give_file(response, "")
        return response

    def _give_file(self, response: reflection_pb2.ServerReflectionResponse, name: str) -> None:
        file = self._by_name.get(name)
        if file is None:
            response.error_response.error_code = grpc.StatusCode.NOT_FOUND.value[0]
            response.error_response.error_message = "not found"
        else:
            response.file_descriptor_response.file_descriptor_proto.append(file)


def _file_of(module: Any) -> FileDescriptorProto:
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _with_names(file: FileDescriptorProto, service_names: tuple[str, ...]) -> FileDescriptorProto:
    """Copy the file with its service under each of these names."""
    (service,) = file.service
    for name in service_names:
        own = name.removeprefix(f"{file.package}.")
        if own != service.name:
            file.service.add().CopyFrom(service)
            file.service[-1].name = own
    return file


def _moved(file: FileDescriptorProto, old: str, new: str) -> FileDescriptorProto:
    """Copy the file into another package."""
    file.package = new
    file.name = f"{new.replace('.', '/')}/{file.name}"
    rename: Callable[[str], str] = lambda name: name.replace(f".{old}.", f".{new}.", 1)  # noqa: E731
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = rename(field.type_name)
    for service in file.service:
        for method in service.method:
            method.input_type, method.output_type = rename(method.input_type), rename(method.output_type)
    return file


def _symbols(file: FileDescriptorProto) -> list[str]:
    names = [message.name for message in file.message_type] + [enum.name for enum in file.enum_type]
    names += [service.name for service in file.service]
    names += [f"{m.name}.{inner.name}" for m in file.message_type for inner in m.enum_type]
    names += [f"{s.name}.{method.name}" for s in file.service for method in s.method]
    return [f"{file.package}.{name}" for name in names]
