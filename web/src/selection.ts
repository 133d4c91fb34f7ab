// Channels and their members, through the Tooling API: which events a channel carries.

import type { Api, Json } from "./api";
import { DATA } from "./version";

export const STANDARD_CHANNEL = "ChangeEvents";
const MEMBERS = "tooling/sobjects/PlatformEventChannelMember";

export interface Channel {
  id: string;
  name: string;
  label: string;
  type: string;
}

export interface Member {
  id: string;
  /** The channel's id, or ChangeEvents for the standard one. */
  channel: string;
  event: string;
  filter: string;
}

/** All channels of the org's own, what they carry, and what they could. */
export interface EventChannelSetup {
  channels: Channel[];
  members: Member[];
  selectable: { changes: string[]; platform: string[] };
}

/** What a member adds to its event: a condition, and fields that it carries though they did not change. */
export interface MemberMore {
  filter: string;
  enriched: string[];
}

/** `Account` has `AccountChangeEvent`, `Invoice__c` has `Invoice__ChangeEvent`. */
export function changeEventName(entity: string): string {
  return entity.endsWith("__c") ? `${entity.slice(0, -1)}ChangeEvent` : `${entity}ChangeEvent`;
}

export function entityOf(event: string): string {
  return event.replace(/__ChangeEvent$/, "__c").replace(/ChangeEvent$/, "");
}

export async function readChannels(api: Api): Promise<Channel[]> {
  const page = await api.tooling("SELECT Id, DeveloperName, MasterLabel, ChannelType FROM PlatformEventChannel");
  return page.records.map((row) => ({
    id: String(row["Id"]),
    name: `${String(row["DeveloperName"])}__chn`,
    label: String(row["MasterLabel"]),
    type: String(row["ChannelType"]),
  }));
}

export async function readMembers(api: Api): Promise<Member[]> {
  const page = await api.tooling(
    "SELECT Id, MasterLabel, EventChannel, FilterExpression FROM PlatformEventChannelMember",
  );
  return page.records.map((row) => ({
    id: String(row["Id"]),
    channel: String(row["EventChannel"]),
    event: String(row["MasterLabel"]),
    filter: String(row["FilterExpression"] ?? ""),
  }));
}

/** The events that can be put on channels: those of objects, and platform events. */
export async function readSelectable(api: Api): Promise<{ changes: string[]; platform: string[] }> {
  const page = await api.tooling("SELECT QualifiedApiName FROM EntityDefinition");
  const names = page.records.map((row) => String(row["QualifiedApiName"])).sort();
  return {
    changes: names.filter((name) => name.endsWith("ChangeEvent")),
    platform: names.filter((name) => name.endsWith("__e")),
  };
}

/** Put an event on a channel, given by its full name. */
export function addMember(api: Api, channel: string, event: string, more?: MemberMore): Promise<string> {
  const fullName = `${channel}_${event}`.replace(/__+/g, "_");
  return api.create(MEMBERS, { FullName: fullName, Metadata: renderMember(channel, event, more) });
}

export function updateMember(api: Api, id: string, channel: string, event: string, more: MemberMore): Promise<null> {
  return api.update(MEMBERS, id, { Metadata: renderMember(channel, event, more) });
}

export async function readEnriched(api: Api, id: string): Promise<string[]> {
  const found = await api.get<{ Metadata: { enrichedFields?: { name: string }[] | null } }>(`${DATA}/${MEMBERS}/${id}`);
  return (found.Metadata.enrichedFields ?? []).map((field) => field.name);
}

function renderMember(channel: string, event: string, more?: MemberMore): Json {
  return {
    eventChannel: channel,
    selectedEntity: event,
    ...(more === undefined || more.filter === "" ? {} : { filterExpression: more.filter }),
    ...(more === undefined || more.enriched.length === 0
      ? {}
      : { enrichedFields: more.enriched.map((name) => ({ name })) }),
  };
}

export function removeMember(api: Api, id: string): Promise<null> {
  return api.remove(MEMBERS, id);
}
