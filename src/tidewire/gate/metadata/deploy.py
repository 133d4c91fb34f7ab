"""Deploying a package: all of its components in one transaction, or none of them.

Theory of operation. Every component is translated into one org definition (`Draft`), which is applied as a whole. So
components may refer to each other in any order, and the definition finds the order. A deploy takes one of three ways:

- It succeeds: components and result commit in one transaction.
- The package itself is faulty (unknown types, unreadable files, components that cannot be translated): nothing is
  applied, and the same transaction stores the problems as the result.
- Applying the definition raises: the transaction is rolled back, so a second one stores the result.

An error stops a definition at its first fault, but a client wants all faults at once. `_all_problems` therefore removes
the faulty component and plans the rest as a dry run, again and again, until nothing fails or nothing is left.

A deploy is finished, and its result stored, before its id is returned. A check is a dry run; its package is stored with
the result, so that it can be deployed by its id. There are no Apex tests, so the counts of tests are 0.
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
from tidewire.gate.metadata.changes import add_component, apply_draft, context_of
from tidewire.gate.metadata.objects import Draft, field_components
from tidewire.gate.metadata.package import MANIFEST, Message, Package, read_package
from tidewire.gate.metadata.properties import Component, items_of, text_of
from tidewire.gate.metadata.registry import METADATA_TYPES, Source
from tidewire.gate.metadata.service import Metadata
from tidewire.gate.metadata.stored_requests import store_request
from tidewire.gate.requests import Call
from tidewire.records.work import UnitOfWork
from tidewire.schema.values import render_datetime

DEPLOY_PREFIX = "0Af"
_WORD = re.compile(r"[\w.]+")
_MAX_PROBLEMS = 50
_SINGLE, _IN_FOLDER = b"1", b"0"  # prefix of a stored archive: whether it is a single package


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """Options of a deploy. An error always rolls back everything; `rollback_on_error` is only echoed."""

    is_check_only: bool = False
    is_single_package: bool = False
    ignores_warnings: bool = False
    rollback_on_error: bool = True


@dataclass(frozen=True, slots=True)
class _Request:
    """Who deploys, how and when."""

    principal: Principal
    options: DeployOptions
    started_ms: int


class Deploys:
    """Deploys packages, and returns stored results."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock

    async def deploy(self, call: Call, archive: bytes, options: DeployOptions) -> str:
        """Deploy an archive; returns the id of its stored result. Raises AccessDenied."""
        await self._metadata.check(call.principal)
        try:
            # Off the loop: unpacking and parsing up to 64 MB takes seconds.
            files = await asyncio.to_thread(read_zip, archive)
            package = await asyncio.to_thread(read_package, files, is_single=options.is_single_package)
        except RequestError as error:
            # An unreadable archive gives a failed deploy, not a failed call: clients poll for the result.
            package = Package(problems=[Message("", MANIFEST, MANIFEST, error.message)])
        request = _Request(call.principal, options, self._clock.now_ms())
        mark = _SINGLE if options.is_single_package else _IN_FOLDER
        data = mark + archive if options.is_check_only else b""
        try:
            return await self._metadata.commit(call, partial(self._run, request, package, data))
        except RequestError as error:
            # The transaction was rolled back, and the result with it; store the result in a second one.
            return await self._metadata.commit(call, partial(self._fail, request, package, error))

    async def deploy_checked(self, call: Call, request_id: str) -> str:
        """Deploy the package of a successful check; returns an id, like `deploy`.

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
        """Read the result of a deploy with all details. Raises RecordNotFound, AccessDenied."""
        result: dict[str, object] = json.loads(
            (await self._metadata.request(principal, "deploy", request_id)).result
        )
        return result

    def _run(self, request: _Request, package: Package, data: bytes, unit: UnitOfWork) -> str:
        problems = list(package.problems)
        draft, messages = _draft(unit, package, problems)
        # Problems found without applying anything: this transaction has changed nothing and may store the result.
        if problems:
            problems = self._all_problems(unit, package, problems)
            return _store_result(unit, request, [], problems)
        records = self._metadata.gate.records
        lines = apply_draft(records, unit, draft, is_dry_run=request.options.is_check_only)
        # The plan says which existing components really change: their names occur in its lines.
        words = [set(_WORD.findall(line)) for line in lines]
        done = [_with_outcome(message, words) for message in messages]
        done += [Message("", MANIFEST, path, is_changed=True) for path in package.manifests]
        return _store_result(unit, request, done, [], data)

    def _fail(self, request: _Request, package: Package, error: RequestError, unit: UnitOfWork) -> str:
        """Store the result of a failed deploy: the error that stopped it, and the problems behind it."""
        problems = self._all_problems(unit, package, [_blame(package, error)])
        return _store_result(unit, request, [], problems)

    def _all_problems(self, unit: UnitOfWork, package: Package, problems: Sequence[Message]) -> list[Message]:
        """Return the problems, and those that show once the faulty components are removed."""
        found, catalog = list(problems), unit.catalog
        rest: Package | None = package
        for problem in found:  # grows while it is iterated
            rest = None if rest is None else _without(rest, problem)
            # Plan only after the last known problem, when all faulty components are removed. The limit bounds the
            # work: each round plans the whole rest again.
            if rest is None or problem is not found[-1] or len(found) >= _MAX_PROBLEMS:
                continue
            try:
                draft, _ = _draft(unit, rest, found)
                apply_draft(self._metadata.gate.records, unit, draft, is_dry_run=True)
            except RequestError as error:
                found.append(_blame(rest, error))
            finally:
                # A dry run leaves the future catalog in the unit; the next round must start from the stored one.
                unit.catalog = catalog
        return found


def _store_result(
    unit: UnitOfWork,
    request: _Request,
    done: Sequence[Message],
    problems: Sequence[Message],
    data: bytes = b"",
) -> str:
    # A check creates nothing, so its components have no ids to report.
    ids = {} if request.options.is_check_only else _component_ids(unit)
    result = _render_result(request, done, problems, ids, unit.now_ms)
    return store_request(unit, DEPLOY_PREFIX, "deploy", request.principal.user_id, result, data)


def _draft(unit: UnitOfWork, package: Package, problems: list[Message]) -> tuple[Draft, list[Message]]:
    """Translate a package into a definition, with a message for each component; adds to `problems`."""
    draft = Draft()
    messages: list[Message] = []
    source = Source(unit.tx, unit.catalog)
    # Of the whole package: a roll-up may summarise a field that comes later in it.
    context = context_of(unit, [component for component, _ in package.components])
    for component, path in package.components:
        try:
            add_component(draft, component, context)
        except RequestError as error:
            problems.append(Message(component.kind, component.full_name, path, error.message))
            continue
        # The result lists fields in an object's file as components too.
        for each in (component, *_nested(component)):
            own = replace(source, api_version=each.api_version)
            is_new = METADATA_TYPES[each.kind].try_read(own, each.full_name) is None
            messages.append(Message(each.kind, each.full_name, path, is_created=is_new, is_changed=is_new))
    for removed in package.removed:
        _remove(draft, source, removed, messages, problems)
    return draft, messages


def _remove(
    draft: Draft, source: Source, removed: Message, messages: list[Message], problems: list[Message]
) -> None:
    type_, kind = METADATA_TYPES.get(removed.kind), removed.kind
    if type_ is None:
        problem = f"Unknown type name '{kind[:80]}' specified in {removed.path}"
        problems.append(replace(removed, problem=problem))
    elif type_.try_read(source, removed.full_name) is None:
        problem = f"No {kind} named: {removed.full_name[:200]} found"
        messages.append(replace(removed, problem=problem, is_warning=True))
    else:
        type_.remove(draft, removed.full_name)
        messages.append(replace(removed, is_deleted=True, is_changed=True))


def _with_outcome(message: Message, words: Sequence[set[str]]) -> Message:
    """Return the message of an existing component with `is_changed` according to the plan."""
    if message.is_changed or message.problem:
        return message
    return replace(message, is_changed=any(message.full_name in each for each in words))


def _blame(package: Package, error: RequestError) -> Message:
    """Return the error as a problem of the component whose path in the definition it names."""
    # Paths look like `objects.Order__c.fields.Total__c.scale`: section, name, and perhaps a field.
    place = str(error.details.get("path", ""))
    section, _, rest = place.partition(".")
    name, _, inner = rest.partition(".")
    field_name = inner.removeprefix("fields.").partition(".")[0] if inner.startswith("fields.") else ""
    wanted = f"{name}.{field_name}" if field_name else name
    if rest and section[:1].isupper():  # not a section: errors in formulas and roll-ups name `Object.Field`
        wanted = place
    for component, path in package.components:
        for each in (component, *_nested(component)):
            if wanted and each.full_name.lower() == wanted.lower():
                return Message(each.kind, each.full_name, path, error.message)
    # A prevented removal does not name its component; report it for the first removal.
    if section in ("remove", "push_topics") and package.removed:
        return replace(package.removed[0], problem=error.message)
    # Otherwise the first component: a result without a component would look like a success to clients.
    if package.components:
        component, path = package.components[0]
        return Message(component.kind, component.full_name, path, error.message)
    return Message("", MANIFEST, MANIFEST, error.message)


def _without(package: Package, problem: Message) -> Package | None:
    """Return the package without the component of a problem; None if nothing is left or nothing was removed."""
    kept: list[tuple[Component, str]] = []
    for component, path in package.components:
        if component.full_name == problem.full_name:
            continue
        # A faulty field in an object's file: drop the field, keep the object, whose other fields are still checked.
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
        return None  # no progress: the next round would find the same problem again
    return replace(package, components=kept)


def _nested(component: Component) -> list[Component]:
    return field_components(component) if component.kind == "CustomObject" else []


def _render_result(
    request: _Request,
    done: Sequence[Message],
    problems: Sequence[Message],
    ids: Mapping[tuple[str, str], str],
    now_ms: int,
) -> dict[str, object]:
    principal, options, is_success = request.principal, request.options, not problems
    started, ended = render_datetime(request.started_ms, "Z"), render_datetime(now_ms, "Z")
    counted = [message for message in done if message.kind]  # manifests are listed, but are not components
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
    """Return the ids of all components by type and lower-case name."""
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
