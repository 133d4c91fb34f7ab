// One object: its newest records, and its fields.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Api, FieldDescribe, ObjectDescribe, QueryPage, SObject } from "../api";
import { useConsole } from "../console";
import { formatNumber, formatValue } from "../format";
import { href } from "../route";
import { DeleteButton, Done, Page, Problem, Section, Table, emptyText, useLoad, useWork, type Column } from "../ui";

const PAGE_ROWS = 50;
const MAX_OFFSET = 2_000;
const LIST_FIELDS = 5;

export function ObjectPage(props: { entity: string }): JSX.Element {
  const { api } = useConsole();
  const [offset, setOffset] = useState(0);
  const described = useLoad(() => api.describe(props.entity), [api, props.entity]);
  const describe = described.value;
  return (
    <Page title={describe?.labelPlural ?? props.entity}>
      <p class="bar">
        <a href={href("objects")}>All objects</a>
        {describe?.createable === true && <a href={href("objects", props.entity, "new")}>New {describe.label}</a>}
      </p>
      <Problem text={described.problem} />
      {describe !== null && <Records describe={describe} offset={offset} onMove={setOffset} />}
      {describe !== null && (
        <Section title="Fields">
          <Table
            label="Fields"
            columns={FIELD_COLUMNS}
            rows={describe.fields}
            empty="No field is visible."
            keyOf={(field) => field.name}
          />
        </Section>
      )}
    </Page>
  );
}

/** The fields that a list shows: the name and what a person filled in first. */
function listFields(describe: ObjectDescribe): string[] {
  const usable = describe.fields.filter(
    (field) => !["address", "location", "base64", "id"].includes(field.type) && field.compoundFieldName === null,
  );
  const names = usable.filter((field) => field.nameField).map((field) => field.name);
  const others = usable.filter((field) => field.createable && !field.nameField && field.type !== "textarea");
  const chosen = [...names, ...others.map((field) => field.name)].slice(0, LIST_FIELDS);
  const hasStamp = describe.fields.some((field) => field.name === "LastModifiedDate");
  return hasStamp ? [...chosen, "LastModifiedDate"] : chosen;
}

async function readRecords(api: Api, describe: ObjectDescribe, offset: number): Promise<QueryPage> {
  const fields = listFields(describe);
  const order = fields.includes("LastModifiedDate") ? "LastModifiedDate DESC, Id" : "Id";
  return api.query(
    `SELECT ${["Id", ...fields].join(", ")} FROM ${describe.name}` +
      ` ORDER BY ${order} LIMIT ${PAGE_ROWS} OFFSET ${offset}`,
  );
}

function Records(props: {
  describe: ObjectDescribe;
  offset: number;
  onMove: (offset: number) => void;
}): JSX.Element {
  const { api } = useConsole();
  const { describe, offset } = props;
  const work = useWork();
  const found = useLoad(() => readRecords(api, describe, offset), [api, describe, offset]);
  const counted = useLoad(() => api.query(`SELECT count() FROM ${describe.name}`), [api, describe]);
  const remove = (id: string): Promise<void> =>
    work.run(async () => {
      await api.remove(`sobjects/${describe.name}`, id);
      found.again();
      counted.again();
      return `${id} is deleted.`;
    });
  const fields = listFields(describe);
  const [first = "Id"] = fields;
  const columns: Column<SObject>[] = [
    {
      name: first,
      cell: (row) => (
        <a href={href("objects", describe.name, String(row["Id"]))}>
          {formatValue(row[first]) || String(row["Id"])}
        </a>
      ),
    },
    ...fields.slice(1).map((name) => ({ name, cell: (row: SObject) => formatValue(row[name]) })),
  ];
  if (describe.deletable) {
    columns.push({
      name: "Actions",
      cell: (row) => (
        <DeleteButton
          what={formatValue(row[first]) || String(row["Id"])}
          isBusy={work.isBusy}
          onDelete={() => void remove(String(row["Id"]))}
        />
      ),
    });
  }
  const rows = found.value?.records ?? [];
  const total = counted.value?.totalSize;
  return (
    <Section title="Records">
      <Problem text={found.problem || work.problem} />
      <Done text={work.done} />
      <Table
        label={describe.labelPlural}
        columns={columns}
        rows={rows}
        empty={emptyText(found, "No records here.")}
        keyOf={(row) => String(row["Id"])}
      />
      <p class="bar">
        <span>
          {rows.length > 0 && `${offset + 1} to ${offset + rows.length}`}
          {total !== undefined && ` of ${formatNumber(total)}, newest change first`}
        </span>
        <span class="buttons">
          <button type="button" disabled={offset === 0} onClick={() => props.onMove(Math.max(0, offset - PAGE_ROWS))}>
            Previous
          </button>
          <button
            type="button"
            disabled={rows.length < PAGE_ROWS || offset + PAGE_ROWS > MAX_OFFSET}
            onClick={() => props.onMove(offset + PAGE_ROWS)}
          >
            Next
          </button>
        </span>
      </p>
    </Section>
  );
}

const FIELD_COLUMNS: readonly Column<FieldDescribe>[] = [
  { name: "Label", cell: (field) => field.label },
  { name: "API name", cell: (field) => <code>{field.name}</code> },
  {
    name: "Type",
    cell: (field) => {
      const target = field.referenceTo.length > 0 ? ` (${field.referenceTo.join(", ")})` : "";
      return `${field.type}${target}${field.length > 0 && target === "" ? ` (${field.length})` : ""}`;
    },
  },
  {
    name: "May be",
    cell: (field) =>
      [
        field.createable && "set",
        field.updateable && "changed",
        field.nillable && "empty",
        field.calculated && "computed",
      ]
        .filter(Boolean)
        .join(", "),
  },
];
