// Records of one object, page by page: found by name, deleted and undeleted.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ObjectDescribe, SObject } from "../api";
import { useConsole } from "../console";
import { formatField, formatNumber, formatValue } from "../format";
import { countRecords, hasField, listFields, nameField, PAGE_ROWS, readRecords } from "../records";
import { href } from "../route";
import { undelete } from "../soap";
import {
  CheckField,
  DeleteButton,
  Done,
  Problem,
  Section,
  Table,
  TextField,
  emptyText,
  useLoad,
  useWork,
  type Column,
} from "../ui";

/** The columns of a list of records; the first one leads to the record. */
export function recordColumns(describe: ObjectDescribe): Column<SObject>[] {
  const [first, ...others] = listFields(describe);
  return [
    {
      name: first?.name ?? "Id",
      cell: (row) => <a href={href("objects", describe.name, String(row["Id"]))}>{titleOf(describe, row)}</a>,
    },
    ...others.map((field) => ({ name: field.name, cell: (row: SObject) => formatField(field.type, row[field.name]) })),
  ];
}

/** What a person calls a record: its name, or its id if it has none. */
function titleOf(describe: ObjectDescribe, row: SObject): string {
  const [first] = listFields(describe);
  return (first === undefined ? "" : formatValue(row[first.name])) || String(row["Id"]);
}

export function RecordList(props: { describe: ObjectDescribe }): JSX.Element {
  const { describe } = props;
  const [name, setName] = useState("");
  const [wantedName, setWantedName] = useState("");
  const [isDeleted, setDeleted] = useState(false);
  const find = (event: Event): void => {
    event.preventDefault();
    setWantedName(name);
  };
  const finder = nameField(describe);
  return (
    <Section title="Records">
      <form class="inline" onSubmit={find}>
        {finder !== undefined && (
          <>
            <TextField label={`Find by ${finder.name}`} type="search" value={name} onChange={setName} />
            <button type="submit">Find</button>
          </>
        )}
        {describe.undeletable && hasField(describe, "IsDeleted") && (
          <p>
            <CheckField label="Recycle bin" value={isDeleted} onChange={setDeleted} />
          </p>
        )}
      </form>
      <Pages key={`${isDeleted} ${wantedName}`} describe={describe} name={wantedName} isDeleted={isDeleted} />
    </Section>
  );
}

function Pages(props: { describe: ObjectDescribe; name: string; isDeleted: boolean }): JSX.Element {
  const { api } = useConsole();
  const { describe, name, isDeleted } = props;
  /** The last rows of the pages before this one. */
  const [before, setBefore] = useState<readonly SObject[]>([]);
  const work = useWork();
  const wanted = { name, isDeleted, after: before.at(-1) ?? null };
  const found = useLoad(
    async () => ({ before, records: (await readRecords(api, describe, wanted)).records }),
    [api, describe, before],
  );
  const counted = useLoad(() => countRecords(api, describe, wanted), [api, describe]);
  const change = (act: () => Promise<string>): Promise<void> =>
    work.run(async () => {
      const done = await act();
      found.again();
      counted.again();
      return done;
    });
  const remove = (row: SObject): Promise<void> =>
    change(async () => {
      await api.remove(`sobjects/${describe.name}`, String(row["Id"]));
      return `${titleOf(describe, row)} deleted.`;
    });
  const restore = (row: SObject): Promise<void> =>
    change(async () => {
      await undelete(api.token, String(row["Id"]));
      return `${titleOf(describe, row)} restored.`;
    });
  const columns = recordColumns(describe);
  if (isDeleted || describe.deletable) {
    columns.push({
      name: "Actions",
      cell: (row) =>
        isDeleted ? (
          <button type="button" disabled={work.isBusy} onClick={() => void restore(row)}>
            Undelete<span class="unseen"> {titleOf(describe, row)}</span>
          </button>
        ) : (
          <DeleteButton what={titleOf(describe, row)} isBusy={work.isBusy} onDelete={() => void remove(row)} />
        ),
    });
  }
  const rows = found.value?.records ?? [];
  const offset = (found.value?.before ?? before).length * PAGE_ROWS;
  const total = counted.value ?? 0;
  const place = `${formatNumber(offset + 1)} to ${formatNumber(offset + rows.length)}`;
  const last = rows.at(-1);
  const goOn = (): void => {
    // While a page is asked for, the rows of another one are shown, which nothing can follow here.
    if (last !== undefined && found.value?.before === before) {
      setBefore([...before, last]);
    }
  };
  return (
    <>
      <Problem text={found.problem || work.problem} />
      <Done text={work.done} />
      <Table
        id="records"
        label={describe.labelPlural}
        columns={columns}
        rows={rows}
        empty={emptyText(found, isDeleted ? "The recycle bin is empty." : "No records.")}
        keyOf={(row) => String(row["Id"])}
      />
      <p class="bar">
        <span role="status">{rows.length > 0 && `${place} of ${formatNumber(total)}, newest change first`}</span>
        <span class="buttons">
          <button type="button" disabled={before.length === 0} onClick={() => setBefore(before.slice(0, -1))}>
            Previous
          </button>
          <button
            type="button"
            disabled={last === undefined || offset + rows.length >= total}
            onClick={goOn}
          >
            Next
          </button>
        </span>
      </p>
    </>
  );
}
