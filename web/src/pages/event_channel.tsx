// One channel of one's own: its members, each with a filter and enriched fields.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useConsole } from "../console";
import {
  addMember,
  readEnriched,
  removeMember,
  updateMember,
  type Channel,
  type EventChannelSetup,
  type Member,
} from "../selection";
import { DeleteButton, Problem, SelectField, Table, TextField, useWork, WatchLink, type Column } from "../ui";

interface MemberDraft {
  /** Empty for a new member. */
  id: string;
  event: string;
  filter: string;
  enriched: string;
}

const NEW_MEMBER: MemberDraft = { id: "", event: "", filter: "", enriched: "" };

export function EventChannel(props: {
  channel: Channel;
  setup: EventChannelSetup;
  isBusy: boolean;
  onChange: (what: () => Promise<string>) => void;
  onEdit: () => void;
  onRemove: () => void;
}): JSX.Element {
  const { api } = useConsole();
  const { channel, setup } = props;
  const [draft, setDraft] = useState(NEW_MEMBER);
  const opening = useWork();
  const path = `/${channel.type === "data" ? "data" : "event"}/${channel.name}`;
  const members = setup.members.filter((member) => member.channel === channel.id);
  const edit = (member: Member): Promise<void> =>
    opening.run(async () => {
      const enriched = await readEnriched(api, member.id);
      setDraft({ id: member.id, event: member.event, filter: member.filter, enriched: enriched.join(", ") });
      return "";
    });
  const remove = (member: Member): void =>
    props.onChange(async () => {
      await removeMember(api, member.id);
      return `${member.event} is no longer on ${channel.name}.`;
    });
  const save = (event: string): void =>
    props.onChange(async () => {
      const enriched = draft.enriched.split(",").map((name) => name.trim());
      const more = { filter: draft.filter.trim(), enriched: enriched.filter((name) => name !== "") };
      if (draft.id === "") {
        await addMember(api, channel.name, event, more);
      } else {
        await updateMember(api, draft.id, channel.name, event, more);
      }
      setDraft(NEW_MEMBER);
      return `${event} is on ${channel.name}.`;
    });
  const columns: readonly Column<Member>[] = [
    { name: "Event", cell: (member) => member.event },
    { name: "Filter", cell: (member) => <code>{member.filter}</code> },
    {
      name: "Actions",
      cell: (member) => (
        <span class="buttons">
          <button type="button" disabled={opening.isBusy} onClick={() => void edit(member)}>
            Edit
            <span class="unseen">
              {" "}
              {member.event} on {channel.label}
            </span>
          </button>
          <DeleteButton
            what={`${member.event} from ${channel.label}`}
            isBusy={props.isBusy}
            onDelete={() => remove(member)}
          />
        </span>
      ),
    },
  ];
  return (
    <div class="card">
      <h3>
        {channel.label} <code>{path}</code>
      </h3>
      <p class="buttons">
        <button type="button" onClick={props.onEdit}>
          Edit<span class="unseen"> {channel.label}</span>
        </button>
        <WatchLink channel={path} />
        <DeleteButton what={channel.label} isBusy={props.isBusy} onDelete={props.onRemove} />
      </p>
      <Table
        label={`Members of ${channel.label}`}
        columns={columns}
        rows={members}
        empty="No members yet, so the channel sends nothing."
        keyOf={(member) => member.id}
      />
      <Problem text={opening.problem} />
      <MemberForm
        draft={draft}
        choices={selectable(channel, setup, members)}
        canEnrich={channel.type === "data"}
        isBusy={props.isBusy}
        onChange={setDraft}
        onSave={save}
      />
    </div>
  );
}

/** The events that could still be put on a channel. */
function selectable(channel: Channel, setup: EventChannelSetup, members: readonly Member[]): string[] {
  const taken = new Set(members.map((member) => member.event));
  const all = channel.type === "data" ? setup.selectable.changes : setup.selectable.platform;
  return all.filter((name) => !taken.has(name));
}

function MemberForm(props: {
  draft: MemberDraft;
  choices: readonly string[];
  canEnrich: boolean;
  isBusy: boolean;
  onChange: (draft: MemberDraft) => void;
  onSave: (event: string) => void;
}): JSX.Element {
  const { draft, choices, onChange } = props;
  const isNew = draft.id === "";
  const event = isNew ? (choices.includes(draft.event) ? draft.event : (choices[0] ?? "")) : draft.event;
  const submit = (submitted: Event): void => {
    submitted.preventDefault();
    props.onSave(event);
  };
  return (
    <form class="inline" onSubmit={submit}>
      {isNew ? (
        <SelectField
          label="Event to add"
          value={event}
          options={choices.map((name) => [name, name] as const)}
          onChange={(name) => onChange({ ...draft, event: name })}
        />
      ) : (
        <p>
          Edit <strong>{event}</strong>
        </p>
      )}
      <TextField
        label="Filter expression"
        value={draft.filter}
        onChange={(filter) => onChange({ ...draft, filter })}
      />
      {props.canEnrich && (
        <TextField
          label="Enriched fields"
          value={draft.enriched}
          hint="Separated by commas"
          onChange={(enriched) => onChange({ ...draft, enriched })}
        />
      )}
      <button type="submit" disabled={event === "" || props.isBusy}>
        {isNew ? "Add member" : "Save member"}
      </button>
      {!isNew && (
        <button type="button" onClick={() => onChange(NEW_MEMBER)}>
          Cancel
        </button>
      )}
    </form>
  );
}
