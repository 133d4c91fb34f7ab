// One object: its newest records, and its fields.

import type { JSX } from "preact";
import type { FieldDescribe } from "../api";
import { useConsole } from "../console";
import { href } from "../route";
import { Page, Problem, Section, Table, useLoad, type Column } from "../ui";
import { RecordList } from "./record_list";

export function ObjectPage(props: { entity: string }): JSX.Element {
  const { api } = useConsole();
  const described = useLoad(() => api.describe(props.entity), [api, props.entity]);
  const describe = described.value;
  return (
    <Page title={describe?.labelPlural ?? props.entity}>
      <p class="bar">
        <a href={href("objects")}>All objects</a>
        {describe?.createable === true && <a href={href("objects", props.entity, "new")}>New {describe.label}</a>}
      </p>
      <Problem text={described.problem} />
      {describe !== null && <RecordList describe={describe} />}
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
