"""Packages: the manifest `package.xml`, which names components, and the files with the components. Pure.

Everything that the manifest names must be in the files, and vice versa. If the manifest names fields of an object but
not the object, only those fields are used. `destructiveChanges.xml`, also with Pre or Post before the dot, is a
manifest of components to remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidewire.errors import BodyMalformed, RequestError
from tidewire.gate.metadata.objects import field_components
from tidewire.gate.metadata.properties import Component, items_of, text_of, texts_of
from tidewire.gate.metadata.registry import METADATA_TYPES, MetadataType
from tidewire.gate.metadata.xml import parse_file, render_file

MANIFEST = "package.xml"
_REMOVALS = ("destructiveChangesPre.xml", "destructiveChanges.xml", "destructiveChangesPost.xml")
_MAX_MEMBERS = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    """The result for one component or file. `problem` is empty on success."""

    kind: str
    full_name: str
    path: str
    problem: str = ""
    is_warning: bool = False
    is_created: bool = False
    is_changed: bool = False
    is_deleted: bool = False


@dataclass(slots=True)
class Package:
    """A parsed package: components with their files, removals, and problems found so far.

    `removed` names each component to remove, and the manifest that lists it.
    """

    components: list[tuple[Component, str]] = field(default_factory=list)
    removed: list[Message] = field(default_factory=list)
    problems: list[Message] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)


def parse_manifest(data: bytes) -> tuple[dict[str, list[str]], str]:
    """Parse a manifest into members by type, and its version. Raises BodyMalformed."""
    properties = parse_file(data, "Package")
    members: dict[str, list[str]] = {}
    for item in items_of(properties, "types"):
        name = text_of(item, "name").strip()
        members.setdefault(name, []).extend(text.strip() for text in texts_of(item, "members"))
    if sum(map(len, members.values())) > _MAX_MEMBERS:
        raise BodyMalformed(f"The manifest has more than {_MAX_MEMBERS} members")
    return members, text_of(properties, "version").strip()


def version_number(text: str) -> int | None:
    """Parse the API version of a manifest; None if it is not a version."""
    whole = text.partition(".")[0]
    return int(whole) if whole.isascii() and whole.isdigit() and len(whole) <= 3 else None


def render_manifest(members: Mapping[str, Iterable[str]], version: str) -> bytes:
    """Render a manifest."""
    types = [{"members": sorted(names), "name": kind} for kind, names in sorted(members.items())]
    return render_file("Package", {"types": types, "version": version})


def read_package(files: Mapping[str, bytes], *, is_single: bool) -> Package:
    """Parse the files of an archive; unless it is single, each package is in a folder."""
    package = Package()
    folders = [""] if is_single else sorted({name.partition("/")[0] + "/" for name in files if "/" in name})
    own = {folder: _inside(files, folder) for folder in folders}
    found = {folder: inner for folder, inner in own.items() if MANIFEST in inner}
    if not found:
        package.problems.append(Message("", MANIFEST, MANIFEST, "No package.xml found"))
    for folder, inner in found.items():
        try:
            _read_one(package, folder, inner)
        except RequestError as error:
            package.problems.append(Message("", MANIFEST, folder + MANIFEST, error.message))
    return package


def _inside(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {name.removeprefix(folder): data for name, data in files.items() if name.startswith(folder)}


def _read_one(package: Package, folder: str, files: Mapping[str, bytes]) -> None:
    members, version = parse_manifest(files[MANIFEST])
    package.manifests.append(folder + MANIFEST)
    for kind in members:
        if kind not in METADATA_TYPES:
            problem = f"Unknown type name '{kind[:80]}' specified in {MANIFEST}"
            package.problems.append(Message("", MANIFEST, folder + MANIFEST, problem))
    seen: set[tuple[str, str]] = set()
    for path in sorted(files):
        if path != MANIFEST and path not in _REMOVALS:
            _read_component(package, folder, path, files[path], members, seen, version_number(version))
    for kind, names in members.items():
        for name in names:
            if kind in METADATA_TYPES and name != "*" and (kind, name.lower()) not in seen:
                problem = (
                    f"An object '{name[:200]}' of type {kind} was named in {MANIFEST}, "
                    "but was not found in zipped directory"
                )
                package.problems.append(Message(kind, name, folder + MANIFEST, problem))
    for path in _REMOVALS:
        if path in files:
            gone, _ = parse_manifest(files[path])
            for kind, names in gone.items():
                package.removed += [Message(kind, name, folder + path) for name in names]


def _read_component(
    package: Package,
    folder: str,
    path: str,
    data: bytes,
    members: Mapping[str, list[str]],
    seen: set[tuple[str, str]],
    api_version: int | None,
) -> None:
    type_, name = _type_of(path)
    if type_ is None:
        problem = "Files of this type are not supported"
        package.problems.append(Message("", name, folder + path, problem))
        return
    try:
        component = Component(type_.name, name, parse_file(data, type_.name), api_version)
        fields = field_components(component) if type_.name == "CustomObject" else []
    except RequestError as error:
        package.problems.append(Message(type_.name, name, folder + path, error.message))
        return
    if _is_member(members, type_.name, name):
        seen.add((type_.name, name.lower()))
        package.components.append((component, folder + path))
        seen.update(("CustomField", each.full_name.lower()) for each in fields)
        return
    chosen = [each for each in fields if _is_member(members, "CustomField", each.full_name)]
    seen.update(("CustomField", each.full_name.lower()) for each in chosen)
    package.components += [(each, folder + path) for each in chosen]
    if not chosen:
        package.problems.append(Message(type_.name, name, folder + path, f"Not in {MANIFEST}"))


def _type_of(path: str) -> tuple[MetadataType | None, str]:
    directory, _, file = path.rpartition("/")
    name, _, suffix = file.rpartition(".")
    for type_ in METADATA_TYPES.values():
        if not type_.is_nested and (directory, suffix) == (type_.directory, type_.suffix):
            return type_, name
    return None, file


def _is_member(members: Mapping[str, list[str]], kind: str, name: str) -> bool:
    listed = {each.lower() for each in members.get(kind, ())}
    return "*" in listed or name.lower() in listed
