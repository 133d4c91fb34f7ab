// Channels: generic ones that anybody pushes to, and those that carry chosen change or platform events.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { SObject } from "../api";
import { useConsole } from "../console";
import {
  DeleteButton,
  Done,
  OpenForm,
  Page,
  Problem,
  SaveButtons,
  Section,
  Table,
  TextField,
  WatchLink,
  emptyText,
  useLoad,
  useWork,
  type Column,
} from "../ui";
import { EventChannels } from "./event_channels";

export function Channels(): JSX.Element {
  return (
    <Page title="Channels">
      <GenericChannels />
      <EventChannels />
    </Page>
  );
}

interface GenericDraft {
  id: string;
  name: string;
  description: string;
}

function GenericChannels(): JSX.Element {
  const { api } = useConsole();
  const [draft, setDraft] = useState<GenericDraft | null>(null);
  const work = useWork();
  const loaded = useLoad(() => api.query("SELECT Id, Name, Description FROM StreamingChannel ORDER BY Name"), [api]);
  const save = (saved: GenericDraft): Promise<void> =>
    work.run(async () => {
      const fields = { Name: saved.name, Description: saved.description || null };
      if (saved.id === "") {
        await api.create("sobjects/StreamingChannel", fields);
      } else {
        await api.update("sobjects/StreamingChannel", saved.id, fields);
      }
      setDraft(null);
      loaded.again();
      return `${saved.name} saved.`;
    });
  const remove = (row: SObject): Promise<void> =>
    work.run(async () => {
      await api.remove("sobjects/StreamingChannel", String(row["Id"]));
      loaded.again();
      return `${String(row["Name"])} deleted.`;
    });
  const open = (opened: GenericDraft | null): void => {
    work.forget();
    setDraft(opened);
  };
  const columns: readonly Column<SObject>[] = [
    { name: "Name", cell: (row) => <code>{String(row["Name"])}</code> },
    { name: "Description", cell: (row) => String(row["Description"] ?? "") },
    {
      name: "Actions",
      cell: (row) => (
        <span class="buttons">
          <button
            type="button"
            onClick={() =>
              open({
                id: String(row["Id"]),
                name: String(row["Name"]),
                description: String(row["Description"] ?? ""),
              })
            }
          >
            Edit<span class="unseen"> {String(row["Name"])}</span>
          </button>
          <WatchLink channel={String(row["Name"])} />
          <DeleteButton what={String(row["Name"])} isBusy={work.isBusy} onDelete={() => void remove(row)} />
        </span>
      ),
    },
  ];
  return (
    <Section title="Generic streaming channels">
      <Problem text={loaded.problem || (draft === null ? work.problem : "")} />
      <Done text={work.done} />
      <Table
        label="Generic streaming channels"
        columns={columns}
        rows={loaded.value?.records ?? []}
        empty={emptyText(loaded, "No generic channels yet.")}
        keyOf={(row) => String(row["Id"])}
      />
      <p>
        <button type="button" onClick={() => open({ id: "", name: "/u/", description: "" })}>
          New generic channel
        </button>
      </p>
      {draft !== null && (
        <OpenForm
          key={draft.id}
          label="Generic channel"
          onSubmit={() => void save(draft)}
          onCancel={() => open(null)}
        >
          <TextField
            label="Channel name"
            value={draft.name}
            hint="Begins with /u/"
            onChange={(name) => setDraft({ ...draft, name })}
            required
          />
          <TextField
            label="Description"
            value={draft.description}
            onChange={(description) => setDraft({ ...draft, description })}
          />
          <Problem text={work.problem} />
          <SaveButtons isBusy={work.isBusy} onCancel={() => open(null)} />
        </OpenForm>
      )}
    </Section>
  );
}
