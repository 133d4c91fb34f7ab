// Every object the user may know of.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ObjectEntry } from "../api";
import { useConsole } from "../console";
import { href } from "../route";
import { Page, Problem, Table, TextField, emptyText, useLoad, type Column } from "../ui";

const COLUMNS: readonly Column<ObjectEntry>[] = [
  { name: "Label", cell: (entry) => <a href={href("objects", entry.name)}>{entry.label}</a> },
  { name: "API name", cell: (entry) => <code>{entry.name}</code> },
  { name: "Prefix", cell: (entry) => entry.keyPrefix ?? "" },
  { name: "Kind", cell: (entry) => (entry.custom ? "custom" : "standard") },
];

export function ObjectList(): JSX.Element {
  const { api } = useConsole();
  const [filter, setFilter] = useState("");
  const loaded = useLoad(() => api.objects(), [api]);
  const wanted = filter.trim().toLowerCase();
  const shown = (loaded.value ?? [])
    .filter((entry) => entry.queryable && `${entry.label} ${entry.name}`.toLowerCase().includes(wanted))
    .sort((a, b) => a.label.localeCompare(b.label));
  return (
    <Page title="Objects">
      <Problem text={loaded.problem} />
      <TextField label="Filter" type="search" value={filter} onChange={setFilter} />
      <Table
        label="Objects"
        columns={COLUMNS}
        rows={shown}
        empty={emptyText(loaded, "No object matches.")}
        keyOf={(entry) => entry.name}
      />
    </Page>
  );
}
