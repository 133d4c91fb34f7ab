// The history of one record, as a lake keeps it.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refused, type Api } from "../api";
import { useConsole } from "../console";
import { formatTime } from "../format";
import { useRoute } from "../route";
import { Problem, Section, SelectField, Table, TextField, useWork, type Column } from "../ui";

interface HistoryRow {
  replay_id: number;
  change_type?: string;
  commit_ms?: number | null;
  user_id?: string | null;
  origin?: string | null;
  changed?: string[] | null;
  values_json?: string | null;
  problem?: string | null;
}

interface RecordHistory {
  entity: string;
  id: string;
  changes: HistoryRow[];
  at_most: number;
}

const COLUMNS: readonly Column<HistoryRow>[] = [
  { name: "When", cell: (row) => (typeof row.commit_ms === "number" ? formatTime(row.commit_ms) : "") },
  { name: "Change", cell: (row) => <strong>{row.change_type ?? ""}</strong> },
  { name: "Changed", cell: (row) => (row.changed ?? []).join(", ") },
  { name: "Values", cell: (row) => <code class="wrap">{row.values_json ?? row.problem ?? ""}</code> },
  { name: "By", cell: (row) => row.user_id ?? "" },
  { name: "Origin", cell: (row) => row.origin ?? "" },
  { name: "Replay id", cell: (row) => row.replay_id, isNumber: true },
];

async function readHistory(api: Api, entity: string, id: string): Promise<RecordHistory> {
  try {
    return await api.own(`pipeline/history?entity=${encodeURIComponent(entity)}&id=${encodeURIComponent(id)}`);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) {
      throw new Refused(404, "", `The lake keeps no history of ${entity}.`);
    }
    throw error;
  }
}

/** The route may name a record: its history is then looked up at once. */
export function History(props: { entities: readonly string[] }): JSX.Element {
  const { api } = useConsole();
  const [, givenEntity = "", givenId = ""] = useRoute();
  const [entity, setEntity] = useState(givenEntity);
  const [id, setId] = useState(givenId);
  const [found, setFound] = useState<RecordHistory | null>(null);
  const work = useWork();
  const chosen = entity || (props.entities[0] ?? "");
  const look = (): Promise<void> =>
    work.run(async () => {
      setFound(null);
      setFound(await readHistory(api, chosen, id.trim()));
      return "";
    });
  useEffect(() => {
    if (givenId !== "") {
      void look();
    }
  }, [givenId]);
  const submit = (event: Event): void => {
    event.preventDefault();
    void look();
  };
  const options = [...new Set([...props.entities, ...(givenEntity === "" ? [] : [givenEntity])])];
  return (
    <Section title="History of a record">
      <form class="inline" onSubmit={submit}>
        <SelectField
          label="Entity"
          value={chosen}
          options={options.map((name) => [name, name] as const)}
          onChange={setEntity}
        />
        <TextField label="Record id" value={id} onChange={setId} required />
        <button type="submit" disabled={work.isBusy}>
          Show history
        </button>
      </form>
      <Problem text={work.problem} />
      {found !== null && (
        <Table
          id="history"
          label={`History of ${found.id}`}
          columns={COLUMNS}
          rows={found.changes}
          empty="The lake has no change of this record."
          keyOf={(row) => `${row.replay_id} ${row.change_type ?? ""}`}
        />
      )}
    </Section>
  );
}
