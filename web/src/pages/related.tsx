// What refers to a record: each relationship that has any, and its first records when it is opened.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ObjectDescribe, SObject } from "../api";
import { useConsole } from "../console";
import { formatNumber } from "../format";
import { listFields, readRelated, relatedFrom, type Related as Relationship } from "../records";
import { href } from "../route";
import { Problem, Section, Table, emptyText, useLoad } from "../ui";
import { recordColumns } from "./record_list";

const SHOWN = 20;

export function Related(props: { describe: ObjectDescribe; recordId: string }): JSX.Element {
  const { api } = useConsole();
  const { describe, recordId } = props;
  const loaded = useLoad(() => readRelated(api, describe, recordId), [api, describe, recordId]);
  return (
    <Section title="Related records">
      <Problem text={loaded.problem} />
      {loaded.value?.length !== 0 ? null : <p class="quiet">No related records.</p>}
      {(loaded.value ?? []).map((each) => (
        <OneRelationship key={each.relationship.relationshipName} related={each} recordId={recordId} />
      ))}
    </Section>
  );
}

function OneRelationship(props: { related: Relationship; recordId: string }): JSX.Element {
  const { relationship, count } = props.related;
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {relationship.relationshipName} ({formatNumber(count)})
      </summary>
      {isOpen && <FirstRecords related={props.related} recordId={props.recordId} />}
    </details>
  );
}

async function readFirst(
  api: ReturnType<typeof useConsole>["api"],
  related: Relationship,
  recordId: string,
): Promise<{ describe: ObjectDescribe; rows: SObject[]; soql: string }> {
  const describe = await api.describe(related.relationship.childSObject);
  const fields = ["Id", ...listFields(describe).map((field) => field.name)];
  const soql = `SELECT ${fields.join(", ")} ${relatedFrom(related.relationship, recordId)}`;
  const page = await api.query(`${soql} LIMIT ${SHOWN}`);
  return { describe, rows: page.records, soql };
}

function FirstRecords(props: { related: Relationship; recordId: string }): JSX.Element {
  const { api } = useConsole();
  const loaded = useLoad(() => readFirst(api, props.related, props.recordId), [api, props.recordId]);
  const found = loaded.value;
  return (
    <>
      <Problem text={loaded.problem} />
      <Table
        label={props.related.relationship.relationshipName ?? ""}
        columns={found === null ? [] : recordColumns(found.describe)}
        rows={found?.rows ?? []}
        empty={emptyText(loaded, "No related records.")}
        keyOf={(row) => String(row["Id"])}
      />
      {found !== null && props.related.count > SHOWN && (
        <p>
          <a href={href("query", found.soql)}>All {formatNumber(props.related.count)} in SOQL</a>
        </p>
      )}
    </>
  );
}
