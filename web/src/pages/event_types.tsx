// Platform events: list, make, edit, delete, and publish one to see it arrive.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Api, Json } from "../api";
import { useConsole } from "../console";
import type { EventField, EventType } from "../event_type";
import { useStore } from "../store";
import { DATA } from "../version";
import {
  DeleteButton,
  Done,
  NotTold,
  OpenForm,
  Page,
  Problem,
  SaveButtons,
  SelectField,
  Table,
  TextField,
  emptyText,
  useLoad,
  useWork,
  type Column,
} from "../ui";
import { OpenEvent } from "./event_type";

const NEW_EVENT: EventType = {
  id: "",
  name: "",
  label: "",
  pluralLabel: "",
  publishBehavior: "PublishAfterCommit",
  fields: [],
  more: {},
};

async function readEventTypes(api: Api): Promise<EventType[]> {
  const page = await api.tooling("SELECT DurableId, QualifiedApiName FROM EntityDefinition");
  const own = page.records.filter((row) => String(row["QualifiedApiName"]).endsWith("__e"));
  return Promise.all(
    own.map(async (row) => {
      const id = String(row["DurableId"]);
      const found = await api.get<{ FullName: string; Metadata: Json }>(`${DATA}/tooling/sobjects/CustomObject/${id}`);
      const { fields = [], ...more } = found.Metadata;
      return {
        id,
        name: found.FullName,
        label: String(found.Metadata["label"]),
        pluralLabel: String(found.Metadata["pluralLabel"] ?? ""),
        publishBehavior: String(found.Metadata["publishBehavior"] ?? "PublishAfterCommit"),
        fields: fields as EventField[],
        more,
      };
    }),
  );
}

async function saveEventType(api: Api, draft: EventType): Promise<string> {
  const name = draft.name.endsWith("__e") ? draft.name : `${draft.name}__e`;
  const metadata = {
    ...draft.more,
    label: draft.label,
    pluralLabel: draft.pluralLabel || `${draft.label}s`,
    deploymentStatus: "Deployed",
    eventType: "HighVolume",
    publishBehavior: draft.publishBehavior,
  };
  if (draft.id === "") {
    await api.create("tooling/sobjects/CustomObject", { FullName: name, Metadata: metadata });
  } else {
    await api.update("tooling/sobjects/CustomObject", draft.id, { Metadata: metadata });
  }
  api.forgetTypes();
  return `${name} saved.`;
}

export function EventTypes(): JSX.Element {
  const { api, known } = useConsole();
  const now = useStore(known);
  const [draft, setDraft] = useState<EventType | null>(null);
  const [opened, setOpened] = useState("");
  const work = useWork();
  const loaded = useLoad(() => readEventTypes(api), [api]);
  const change = (what: () => Promise<string>): Promise<void> =>
    work.run(async () => {
      const done = await what();
      loaded.again();
      return done;
    });
  const open = (opening: EventType | null): void => {
    work.forget();
    setDraft(opening);
  };
  const save = (saved: EventType): Promise<void> =>
    change(async () => {
      const done = await saveEventType(api, saved);
      setDraft(null);
      return done;
    });
  const remove = (event: EventType): Promise<void> =>
    change(async () => {
      await api.remove("tooling/sobjects/CustomObject", event.id);
      api.forgetTypes();
      return `${event.name} deleted.`;
    });
  const columns: readonly Column<EventType>[] = [
    { name: "Label", cell: (event) => event.label },
    { name: "Channel", cell: (event) => <code>/event/{event.name}</code> },
    {
      name: "Published",
      cell: (event) => (event.publishBehavior === "PublishImmediately" ? "at once" : "after commit"),
    },
    { name: "Fields", cell: (event) => event.fields.map((field) => field.fullName).join(", ") },
    {
      name: "Actions",
      cell: (event) => (
        <span class="buttons">
          <button type="button" onClick={() => setOpened(event.id)}>
            Open<span class="unseen"> {event.label}</span>
          </button>
          <button type="button" onClick={() => open(event)}>
            Edit<span class="unseen"> {event.label}</span>
          </button>
          <DeleteButton what={event.label} isBusy={work.isBusy} onDelete={() => void remove(event)} />
        </span>
      ),
    },
  ];
  const shown = loaded.value?.find((event) => event.id === opened);
  return (
    <Page title="Platform events">
      {now.statusRefused !== "" && <NotTold reason="the events of an org need the permission View Setup" />}
      <Problem text={loaded.problem || (draft === null ? work.problem : "")} />
      <Done text={work.done} />
      <Table
        label="Platform events"
        columns={columns}
        rows={loaded.value ?? []}
        empty={now.statusRefused === "" ? emptyText(loaded, "No platform events yet.") : ""}
        keyOf={(event) => event.id}
      />
      <p>
        <button type="button" onClick={() => open(NEW_EVENT)}>
          New platform event
        </button>
      </p>
      {draft !== null && (
        <OpenForm key={draft.id} label="Platform event" onSubmit={() => void save(draft)} onCancel={() => open(null)}>
          <TextField
            label="API name"
            value={draft.name}
            hint="Ends with __e"
            readOnly={draft.id !== ""}
            onChange={(name) => setDraft({ ...draft, name })}
            required
          />
          <TextField label="Label" value={draft.label} onChange={(label) => setDraft({ ...draft, label })} required />
          <SelectField
            label="Published"
            value={draft.publishBehavior}
            options={[
              ["PublishAfterCommit", "after commit"],
              ["PublishImmediately", "at once"],
            ]}
            onChange={(publishBehavior) => setDraft({ ...draft, publishBehavior })}
          />
          <Problem text={work.problem} />
          <SaveButtons isBusy={work.isBusy} onCancel={() => open(null)} />
        </OpenForm>
      )}
      {shown !== undefined && (
        <OpenEvent key={shown.id} event={shown} isBusy={work.isBusy} onChange={(what) => void change(what)} />
      )}
    </Page>
  );
}
