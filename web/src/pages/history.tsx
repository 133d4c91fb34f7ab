// The history of one record, as a lake keeps it.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, type Api } from "../api";
import { useConsole } from "../console";
import { formatTime, formatValue } from "../format";
import { useRoute } from "../route";
import { Moment, Problem, Section, SelectField, Table, TextField, useWork, type Column } from "../ui";

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

// Numbers below count days, or something else.
const LEAST_MOMENT_MS = 1e11;

/** The types of an object's fields by name; empty if the object is no longer there. */
type FieldTypes = ReadonlyMap<string, string>;

const columns = (types: FieldTypes): readonly Column<HistoryRow>[] => [
  { name: "When", cell: (row) => (typeof row.commit_ms === "number" ? <Moment ms={row.commit_ms} /> : "") },
  { name: "Change", cell: (row) => <strong>{row.change_type ?? ""}</strong> },
  { name: "Changed", cell: (row) => (row.changed ?? []).join(", ") },
  { name: "Values", cell: (row) => <Values row={row} types={types} /> },
  { name: "By", cell: (row) => <span class="long">{row.user_id ?? ""}</span> },
  { name: "Origin", cell: (row) => <span class="long">{row.origin ?? ""}</span> },
  { name: "Replay id", cell: (row) => row.replay_id, isNumber: true },
];

/** What a change set, a line for each field. */
function Values(props: { row: HistoryRow; types: FieldTypes }): JSX.Element {
  const { values_json: text, problem } = props.row;
  const values = parseValues(text ?? "{}");
  if (values === null || problem) {
    return <code class="wrap">{problem || text}</code>;
  }
  return (
    <ul class="details">
      {Object.entries(values).map(([name, value]) => (
        <li key={name}>
          {name}: <code>{formatStored(props.types.get(name), name, value) || "empty"}</code>
        </li>
      ))}
    </ul>
  );
}

function parseValues(text: string): Record<string, unknown> | null {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return null;
  }
}

/** The lake keeps moments as milliseconds since 1970, and days as their midnight in UTC. */
function formatStored(type: string | undefined, name: string, value: unknown): string {
  if (typeof value !== "number") {
    return formatValue(value);
  }
  if (type === "date") {
    return new Date(value).toISOString().slice(0, 10);
  }
  const isNamedSo = /(Date|Modstamp|DateTime)(__c)?$/.test(name) && value > LEAST_MOMENT_MS;
  return type === "datetime" || (type === undefined && isNamedSo) ? formatTime(value) : formatValue(value);
}

async function readTypes(api: Api, entity: string): Promise<FieldTypes> {
  try {
    const { fields } = await api.describe(entity);
    return new Map(fields.map((field) => [field.name, field.type]));
  } catch (error) {
    if (error instanceof Refused && error.status === 404) {
      return new Map();
    }
    throw error;
  }
}

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
  const [found, setFound] = useState<(RecordHistory & { types: FieldTypes }) | null>(null);
  const work = useWork();
  const chosen = entity || (props.entities[0] ?? "");
  const look = (): Promise<void> =>
    work.run(async () => {
      setFound(null);
      const history = await readHistory(api, chosen, id.trim());
      setFound({ ...history, types: await readTypes(api, chosen) });
      return "";
    });
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (givenId !== "") {
      void look().then(() => place.current?.scrollIntoView({ block: "nearest" }));
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
      <div ref={place}>
        {found !== null && (
          <Table
            id="history"
            label={`History of ${found.id}`}
            columns={columns(found.types)}
            rows={found.changes}
            empty="The lake has no changes of this record."
            keyOf={(row) => `${row.replay_id} ${row.change_type ?? ""}`}
          />
        )}
      </div>
    </Section>
  );
}
