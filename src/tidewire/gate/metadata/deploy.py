"""Deploying a package: all of its components in one transaction, or none of them.

A deploy has ended, and its result is kept, before its id is given out. A check changes nothing, but plans everything
against the org as it is; its package is kept with its result, and can be deployed by its id. There are no tests to run
here, so none are counted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import RecordNotFound, RequestError
from tidewire.gate.metadata.archive import read_zip
from tidewire.gate.metadata.changes import add_component, apply_draft, pending_fields
from tidewire.gate.metadata.field_parse import Context
from tidewire.gate.metadata.objects import Draft, field_components
from tidewire.gate.metadata.package import MANIFEST, Message, Package, Removed, read_package
from tidewire.gate.metadata.properties import Component, items_of, text_of
from tidewire.gate.metadata.registry import METADATA_TYPES, Source
from tidewire.gate.metadata.service import Metadata
from tidewire.gate.metadata.stored_requests import StoredRequest, store_request
from tidewire.gate.requests import Call
from tidewire.ids import make_id
from tidewire.records.numbers import take_number
from tidewire.records.work import UnitOfWork
from tidewire.schema.values import render_datetime

DEPLOY_PREFIX = "0Af"
_WORD = re.compile(r"[\w.]+")
_MAX_PROBLEMS = 50
_SINGLE, _IN_FOLDER = b"1", b"0"  # what stands before the archive of a check


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """How to deploy. A deploy is always undone as a whole, whatever `rollback_on_error` says."""

    is_check_only: bool = False
    is_single_package: bool = False
    ignores_warnings: bool = False
    rollback_on_error: bool = True


class Deploys:
    """Takes packages, and tells what became of them."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock

    async def deploy(self, call: Call, archive: bytes, options: DeployOptions) -> str:
        """Deploy an archive; returns the id under which its result is kept. Raises AccessDenied."""
        await self._metadata.check(call.principal)
        try:
            files = await asyncio.to_thread(read_zip, archive)
            package = await asyncio.to_thread(read_package, files, is_single=options.is_single_package)
        except RequestError as error:
            package = Package(problems=[Message("", MANIFEST, MANIFEST, error.message)])
        started_ms = self._clock.now_ms()
        mark = _SINGLE if options.is_single_package else _IN_FOLDER
        data = mark + archive if options.is_check_only else b""
        work = partial(self._run, call.principal, package, options, started_ms, data)
        try:
            return await self._metadata.commit(call, work)
        except RequestError as error:
            failed = partial(self._fail, call.principal, package, options, started_ms, error)
            return await self._metadata.commit(call, failed)

    async def deploy_checked(self, call: Call, request_id: str) -> str:
        """Deploy the package of a check that found nothing wrong; returns an id, like `deploy`.

        Raises RecordNotFound if the id is not that of such a check.
        """
        kept = await self._metadata.request(call.principal, "deploy", request_id)
        result = json.loads(kept.result)
        if not (result["checkOnly"] and result["success"] and kept.data):
            raise RecordNotFound(
                f"{request_id[:18]} is not the id of a recent validation that succeeded",
                record_id=request_id[:18],
            )
        options = DeployOptions(
            is_single_package=kept.data.startswith(_SINGLE),
            ignores_warnings=result["ignoreWarnings"],
            rollback_on_error=result["rollbackOnError"],
        )
        return await self.deploy(call, kept.data[1:], options)

    async def result(self, principal: Principal, request_id: str) -> dict[str, object]:
        """A deploy's result with all details. Raises RecordNotFound, AccessDenied."""
        result: dict[str, object] = json.loads(
            (await self._metadata.request(principal, "deploy", request_id)).result
        )
        return result

    def _run(
        self,
        principal: Principal,
        package: Package,
        options: DeployOptions,
        started_ms: int,
        data: bytes,
        unit: UnitOfWork,
    ) -> str:
        problems = list(package.problems)
        draft, messages = _draft(unit, package, problems)
        if problems:
            problems = self._with_others(unit, package, problems)
            return self._keep(principal, options, started_ms, [], problems, unit)
        records = self._metadata.gate.records
        lines = apply_draft(records, unit, draft, is_dry_run=options.is_check_only)
        words = [set(_WORD.findall(line)) for line in lines]
        done = [_with_outcome(message, words) for message in messages]
        done += [Message("", MANIFEST, path, is_changed=True) for path in package.manifests]
        return self._keep(principal, options, started_ms, done, [], unit, data)

    def _fail(
        self,
        principal: Principal,
        package: Package,
        options: DeployOptions,
        started_ms: int,
        error: RequestError,
        unit: UnitOfWork,
    ) -> str:
        """Keep why a package was refused: what it failed by, and whatever else a plan without that fails by."""
        problems = self._with_others(unit, package, [_blame(package, error)])
        return self._keep(principal, options, started_ms, [], problems, unit)

    def _with_others(self, unit: UnitOfWork, package: Package, problems: Sequence[Message]) -> list[Message]:
        """The problems, and those of the components that these leave."""
        found, catalog = list(problems), unit.catalog
        rest: Package | None = package
        for problem in found:  # which grows meanwhile
            rest = None if rest is None else _without(rest, problem)
            if rest is None or problem is not found[-1] or len(found) >= _MAX_PROBLEMS:
                continue
            try:
                draft, _ = _draft(unit, rest, found)
                apply_draft(self._metadata.gate.records, unit, draft, is_dry_run=True)
            except RequestError as error:
                found.append(_blame(rest, error))
            finally:
                unit.catalog = catalog
        return found

    def _keep(
        self,
        principal: Principal,
        options: DeployOptions,
        started_ms: int,
        done: Sequence[Message],
        problems: Sequence[Message],
        unit: UnitOfWork,
        data: bytes = b"",
    ) -> str:
        request_id = make_id(DEPLOY_PREFIX, take_number(unit.tx, "metadata requests"))
        ids = {} if options.is_check_only else _component_ids(unit)
        result = _render_result(request_id, principal, options, done, problems, ids, started_ms, unit.now_ms)
        kept = StoredRequest(request_id, "deploy", json.dumps(result), data)
        store_request(unit.tx, kept, principal.user_id, unit.now_ms)
        return request_id


def _draft(unit: UnitOfWork, package: Package, problems: list[Message]) -> tuple[Draft, list[Message]]:
    """The definition of a package, with a message for each component; what cannot be is added to the problems."""
    draft = Draft()
    messages: list[Message] = []
    source = Source(unit.tx, unit.catalog)
    components = [component for component, _ in package.components]
    context = Context(unit.catalog, pending_fields(components))
    for component, path in package.components:
        try:
            add_component(draft, component, unit, context)
        except RequestError as error:
            problems.append(Message(component.kind, component.full_name, path, error.message))
            continue
        inner = field_components(component) if component.kind == "CustomObject" else []
        for each in (component, *inner):
            own = replace(source, api_version=each.api_version)
            is_new = METADATA_TYPES[each.kind].try_read(own, each.full_name) is None
            messages.append(Message(each.kind, each.full_name, path, is_created=is_new, is_changed=is_new))
    for removed in package.removed:
        _remove(draft, source, removed, messages, problems)
    return draft, messages


def _remove(
    draft: Draft, source: Source, removed: Removed, messages: list[Message], problems: list[Message]
) -> None:
    type_ = METADATA_TYPES.get(removed.kind)
    kind, name, path = removed.kind, removed.full_name, removed.path
    if type_ is None:
        problems.append(Message(kind, name, path, f"Unknown type name '{kind[:80]}' specified in {path}"))
    elif type_.try_read(source, name) is None:
        problem = f"No {kind} named: {name[:200]} found"
        messages.append(Message(kind, name, path, problem, is_warning=True))
    else:
        type_.remove(draft, name)
        messages.append(Message(kind, name, path, is_deleted=True, is_changed=True))


def _with_outcome(message: Message, words: Sequence[set[str]]) -> Message:
    """The message of a component that was there already, with whether the plan changes it."""
    if message.is_changed or message.problem:
        return message
    is_changed = any(message.full_name in each for each in words)
    return Message(message.kind, message.full_name, message.path, is_changed=is_changed)


def _blame(package: Package, error: RequestError) -> Message:
    """The component that a refusal is about, by the place in the definition that it names."""
    place = str(error.details.get("path", ""))
    section, _, rest = place.partition(".")
    name, _, inner = rest.partition(".")
    field_name = inner.removeprefix("fields.").partition(".")[0] if inner.startswith("fields.") else ""
    wanted = f"{name}.{field_name}" if field_name else name
    if rest and section[:1].isupper():  # no section: formulas and roll-ups name the field itself
        wanted = place
    for component, path in package.components:
        for each in (component, *_inner(component)):
            if wanted and each.full_name.lower() == wanted.lower():
                return Message(each.kind, each.full_name, path, error.message)
    if section in ("remove", "push_topics") and package.removed:
        first = package.removed[0]
        return Message(first.kind, first.full_name, first.path, error.message)
    if package.components:
        component, path = package.components[0]
        return Message(component.kind, component.full_name, path, error.message)
    return Message("", MANIFEST, MANIFEST, error.message)


def _without(package: Package, problem: Message) -> Package | None:
    """The package without the component that a problem is about; None if nothing is left, or it is about no one."""
    kept: list[tuple[Component, str]] = []
    for component, path in package.components:
        if component.full_name == problem.full_name:
            continue
        entity, _, name = problem.full_name.partition(".")
        if (
            problem.kind == "CustomField"
            and component.kind == "CustomObject"
            and component.full_name == entity
        ):
            fields = [
                f for f in items_of(component.properties, "fields") if text_of(f, "fullName").strip() != name
            ]
            component = Component(
                component.kind, component.full_name, {**component.properties, "fields": fields}
            )
        kept.append((component, path))
    if not kept or kept == package.components:
        return None
    return replace(package, components=kept)


def _inner(component: Component) -> list[Component]:
    return field_components(component) if component.kind == "CustomObject" else []


def _render_result(
    request_id: str,
    principal: Principal,
    options: DeployOptions,
    done: Sequence[Message],
    problems: Sequence[Message],
    ids: Mapping[tuple[str, str], str],
    started_ms: int,
    now_ms: int,
) -> dict[str, object]:
    is_success = not problems
    started, ended = render_datetime(started_ms, "Z"), render_datetime(now_ms, "Z")
    counted = [message for message in done if message.kind]
    return {
        "checkOnly": options.is_check_only,
        "completedDate": ended,
        "createdBy": principal.user_id,
        "createdByName": principal.username,
        "createdDate": started,
        "details": {
            "componentFailures": [_render_message(message, ended, "") for message in problems],
            "componentSuccesses": [
                _render_message(message, ended, ids.get((message.kind, message.full_name.lower()), ""))
                for message in done
            ],
            "runTestResult": {"numFailures": 0, "numTestsRun": 0, "totalTime": 0.0},
        },
        "done": True,
        "id": request_id,
        "ignoreWarnings": options.ignores_warnings,
        "lastModifiedDate": ended,
        "numberComponentErrors": len(problems),
        "numberComponentsDeployed": len(counted),
        "numberComponentsTotal": len(counted) + len(problems),
        "numberTestErrors": 0,
        "numberTestsCompleted": 0,
        "numberTestsTotal": 0,
        "rollbackOnError": options.rollback_on_error,
        "runTestsEnabled": False,
        "startDate": started,
        "status": "Succeeded" if is_success else "Failed",
        "success": is_success,
    }


def _component_ids(unit: UnitOfWork) -> dict[tuple[str, str], str]:
    """The ids of the org's components by kind and lower-case name."""
    source = Source(unit.tx, unit.catalog)
    return {
        (type_.name, entry.full_name.lower()): entry.component_id
        for type_ in METADATA_TYPES.values()
        for entry in type_.entries(source)
    }


def _render_message(message: Message, moment: str, component_id: str) -> dict[str, object]:
    is_failure = bool(message.problem) and not message.is_warning
    found: dict[str, object] = {
        "changed": message.is_changed,
        "componentType": message.kind,
        "created": message.is_created,
        "createdDate": moment,
        "deleted": message.is_deleted,
        "fileName": message.path,
        "fullName": message.full_name,
    }
    if component_id:
        found["id"] = component_id
    if message.problem:
        found["problem"] = message.problem
        found["problemType"] = "Warning" if message.is_warning else "Error"
    return found | {"success": not is_failure}
