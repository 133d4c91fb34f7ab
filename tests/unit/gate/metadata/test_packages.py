"""Packages: deployed, retrieved, and both in turn."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.orgs import TestOrg, open_org
from tests.unit.gate.metadata.samples import EVERYTHING, deploy, make_everything, retrieve, services
from tidewire.errors import AccessDenied, RecordNotFound
from tidewire.gate.metadata.archive import read_zip, write_zip
from tidewire.gate.metadata.deploy import DeployOptions
from tidewire.gate.metadata.package import render_manifest
from tidewire.gate.metadata.retrieve import RetrieveOptions
from tidewire.gate.requests import Call

pytestmark = pytest.mark.anyio


def changes(result: dict[str, Any]) -> list[str]:
    return [
        each["fullName"]
        for each in result["details"]["componentSuccesses"]
        if each["changed"] and each["fullName"] != "package.xml"
    ]


async def test_retrieved_package_deploys_back_without_a_change(org: TestOrg) -> None:
    await make_everything(org)
    before = org.gate.catalog
    archive = await retrieve(org, EVERYTHING)
    result = await deploy(org, archive)
    assert result["status"] == "Succeeded", result
    assert changes(result) == []
    assert org.gate.catalog is before
    assert await retrieve(org, EVERYTHING) == archive


async def test_retrieved_package_makes_the_same_in_another_org(org: TestOrg, tmp_path: Path) -> None:
    await make_everything(org)
    archive = await retrieve(org, EVERYTHING)
    async with open_org(tmp_path / "other") as other:
        result = await deploy(other, archive)
        assert result["status"] == "Succeeded", result
        assert await retrieve(other, EVERYTHING) == archive


def package(files: dict[str, str], members: dict[str, list[str]], **more: bytes) -> bytes:
    """An archive of files under their paths, with a manifest that names the members."""
    packed = {path: text.encode() for path, text in files.items()}
    manifest = render_manifest(members, "62.0")
    return write_zip(
        {**packed, **{f"{name}.xml": data for name, data in more.items()}, "package.xml": manifest}
    )


def xml(root: str, inner: str) -> str:
    return f'<{root} xmlns="http://soap.sforce.com/2006/04/metadata">{inner}</{root}>'


THING = xml(
    "CustomObject",
    "<label>Thing</label><pluralLabel>Things</pluralLabel><deploymentStatus>Deployed</deploymentStatus>"
    "<nameField><label>Name</label><type>Text</type></nameField><sharingModel>ReadWrite</sharingModel>"
    "<fields><fullName>Size__c</fullName><label>Size</label><type>Number</type><precision>5</precision>"
    "<scale>0</scale></fields>",
)
FILES, MEMBERS = {"objects/Thing__c.object": THING}, {"CustomObject": ["Thing__c"]}


def failures(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["fullName"], each["problem"]) for each in result["details"]["componentFailures"]]


async def test_deploy_reports_the_components_it_created(org: TestOrg) -> None:
    result = await deploy(org, package(FILES, MEMBERS))
    assert (result["status"], result["numberComponentsTotal"]) == ("Succeeded", 2)
    assert changes(result) == ["Thing__c", "Thing__c.Size__c"]
    assert org.gate.catalog.object("Thing__c").by_name["size__c"].precision == 5


async def test_deploy_of_a_package_in_a_folder_needs_single_package_to_be_off(org: TestOrg) -> None:
    inner = read_zip(package(FILES, MEMBERS))
    folded = write_zip({f"mine/{name}": data for name, data in inner.items()})
    assert failures(await deploy(org, folded)) == [("package.xml", "No package.xml found")]
    assert (await deploy(org, folded, is_single=False))["success"] is True


async def test_check_only_plans_and_changes_nothing(org: TestOrg) -> None:
    result = await deploy(org, package(FILES, MEMBERS), is_check_only=True)
    assert (result["success"], result["checkOnly"]) == (True, True)
    assert org.gate.catalog.try_object("Thing__c") is None


async def test_one_bad_component_undoes_the_others(org: TestOrg) -> None:
    bad = xml(
        "PermissionSet",
        "<label>Odd</label><userPermissions><enabled>true</enabled><name>Fly</name></userPermissions>",
    )
    archive = package(
        {**FILES, "permissionsets/Odd.permissionset": bad}, {**MEMBERS, "PermissionSet": ["Odd"]}
    )
    result = await deploy(org, archive)
    assert result["status"] == "Failed"
    assert [name for name, _ in failures(result)] == ["Odd"]
    assert org.gate.catalog.try_object("Thing__c") is None


async def test_failed_deploy_lists_every_component_that_cannot_be(org: TestOrg) -> None:
    def field(name: str, properties: str) -> str:
        return f"<fields><fullName>{name}</fullName><label>{name}</label>{properties}</fields>"

    inner = (
        field("Good__c", "<type>Date</type>")
        + field(
            "First__c", "<type>Number</type><precision>4</precision><scale>0</scale><formula>No__c</formula>"
        )
        + field(
            "Second__c",
            "<type>Number</type><precision>4</precision><scale>0</scale><formula>Not__c</formula>",
        )
    )
    bad_set = "<label>Odd</label><userPermissions><enabled>true</enabled><name>Fly</name></userPermissions>"
    files = {
        "objects/Account.object": xml("CustomObject", inner),
        "permissionsets/Odd.permissionset": xml("PermissionSet", bad_set),
    }
    members = {
        "CustomField": ["Account.Good__c", "Account.First__c", "Account.Second__c"],
        "PermissionSet": ["Odd"],
    }
    result = await deploy(org, package(files, members))
    found = [name for name, _ in failures(result)]
    assert sorted(found) == ["Account.First__c", "Account.Second__c", "Odd"]
    assert result["numberComponentErrors"] == 3
    assert org.gate.catalog.object("Account").try_field("Good__c") is None


async def test_validated_package_is_deployed_by_its_id(org: TestOrg) -> None:
    _, deploys, _ = services(org)
    archive = package(FILES, MEMBERS)
    checked = await deploys.deploy(
        org.call, archive, DeployOptions(is_check_only=True, is_single_package=True)
    )
    assert org.gate.catalog.try_object("Thing__c") is None
    deployed = await deploys.deploy_checked(org.call, checked)
    assert (await deploys.result(org.admin, deployed))["success"] is True
    assert org.gate.catalog.try_object("Thing__c") is not None
    for other in (deployed, "0AfTW0000009999AAA", "no id"):  # neither a check nor there
        with pytest.raises(RecordNotFound):
            await deploys.deploy_checked(org.call, other)


async def test_types_and_files_that_do_not_match_are_component_failures(org: TestOrg) -> None:
    archive = package({"objects/Other__c.object": THING}, {"CustomObject": ["Thing__c"], "ApexClass": ["*"]})
    result = await deploy(org, archive)
    names = [name for name, _ in failures(result)]
    assert names == ["package.xml", "Other__c", "Thing__c"]


async def test_destructive_changes_remove_and_only_warn_of_missing_components(org: TestOrg) -> None:
    await deploy(org, package(FILES, MEMBERS))
    gone = render_manifest({"CustomObject": ["Thing__c"], "CustomField": ["Account.No__c"]}, "62.0")
    result = await deploy(org, package({}, {}, destructiveChanges=gone))
    assert result["success"] is True, result
    assert org.gate.catalog.try_object("Thing__c") is None
    warned = [e["problem"] for e in result["details"]["componentSuccesses"] if "problem" in e]  # type: ignore[index]
    assert warned == ["No CustomField named: Account.No__c found"]


async def test_field_of_an_object_that_is_not_there_makes_none(org: TestOrg) -> None:
    text = (
        '<CustomObject xmlns="http://soap.sforce.com/2006/04/metadata"><fields><fullName>Day__c</fullName>'
        "<label>Day</label><type>Date</type></fields></CustomObject>"
    )
    archive = package({"objects/Ghost__c.object": text}, {"CustomField": ["Ghost__c.Day__c"]})
    problem = "Entity Enumeration Or ID: bad value for restricted picklist field: Ghost__c"
    assert failures(await deploy(org, archive)) == [("Ghost__c.Day__c", problem)]
    assert org.gate.catalog.try_object("Ghost__c") is None


async def test_fields_alone_deploy_into_their_object(org: TestOrg) -> None:
    inner = "<fields><fullName>Colour__c</fullName><label>Colour</label><type>Text</type><length>9</length></fields>"
    archive = package(
        {"objects/Account.object": xml("CustomObject", inner)}, {"CustomField": ["Account.Colour__c"]}
    )
    assert (await deploy(org, archive))["success"] is True
    assert org.gate.catalog.object("Account").try_field("Colour__c") is not None


@pytest.mark.parametrize(
    "name", ["../objects/A__c.object", "/etc/passwd", "objects\\A.object", "objects//A.object", "c:/a"]
)
async def test_paths_that_leave_the_package_are_rejected(org: TestOrg, name: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    ((_, problem),) = failures(await deploy(org, out.getvalue()))
    assert problem.startswith("The zip file has a path that is not allowed")


async def test_archive_that_unpacks_to_too_much_is_rejected(org: TestOrg) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"objects/A{number}.object", bytes(8 << 20))
    assert len(out.getvalue()) < 1 << 20
    ((_, problem),) = failures(await deploy(org, out.getvalue()))
    assert problem.startswith("The zip file unpacks to more than")


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"not a zip at all, but long enough to be one", b"PK\x05\x06" + b"\xff" * 18]
)
async def test_bytes_that_are_not_a_zip_archive_are_rejected(org: TestOrg, data: bytes) -> None:
    assert len(failures(await deploy(org, data))) == 1


async def test_retrieve_reports_missing_components(org: TestOrg) -> None:
    await make_everything(org)
    _, _, retrieves = services(org)
    members = {"CustomObject": ["No__c"], "CustomField": ["Account.Extra__c"], "ApexClass": ["*"]}
    request_id = await retrieves.retrieve(org.call, RetrieveOptions(members, "62.0"))
    result, archive = await retrieves.result(org.admin, request_id)
    files = read_zip(archive)
    assert sorted(files) == ["unpackaged/objects/Account.object", "unpackaged/package.xml"]
    assert b"Extra__c" in files["unpackaged/objects/Account.object"]
    messages = result["messages"]
    assert isinstance(messages, list)
    assert [each["problem"] for each in messages] == [
        "Entity of type 'CustomObject' named 'No__c' cannot be found",
        "Unknown type name 'ApexClass' specified in package.xml",
    ]


async def test_result_of_a_deploy_outlives_the_server(tmp_path: Path) -> None:
    async with open_org(tmp_path / "org") as first:
        request_id = str((await deploy(first, package(FILES, MEMBERS)))["id"])
    async with open_org(tmp_path / "org") as second:
        _, deploys, retrieves = services(second)
        assert (await deploys.result(second.admin, request_id[:15]))["success"] is True
        with pytest.raises(RecordNotFound):
            await retrieves.result(second.admin, request_id)
        second.clock.advance(8 * 24 * 3600)
        await deploy(second, package({}, {}))
        with pytest.raises(RecordNotFound):
            await deploys.result(second.admin, request_id)


async def test_reader_may_neither_deploy_nor_retrieve(org: TestOrg) -> None:
    _, deploys, retrieves = services(org)
    call = Call(org.reader, "")
    with pytest.raises(AccessDenied):
        await deploys.deploy(call, package(FILES, MEMBERS), DeployOptions(is_single_package=True))
    with pytest.raises(AccessDenied):
        await retrieves.retrieve(call, RetrieveOptions({"CustomObject": ["*"]}, "62.0"))


async def test_file_with_a_document_type_or_endless_depth_is_a_component_failure(org: TestOrg) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><CustomObject>&b;</CustomObject>'
    deep = xml("CustomObject", "<a>" * 40 + "</a>" * 40)
    for text in (bomb, deep, "<CustomObject/>", "not xml"):
        ((name, _),) = failures(
            await deploy(org, package({"objects/A__c.object": text}, {"CustomObject": ["*"]}))
        )
        assert name == "A__c"
