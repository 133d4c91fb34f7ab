// SOQL: a query, its rows page by page, and its mistakes at their place.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { explain, Refused, type Api, type QueryPage, type SObject } from "../api";
import { useConsole } from "../console";
import { formatNumber, formatValue } from "../format";
import { href, useRoute } from "../route";
import { columnsOfAll, isSubquery, renderCsv, valueAt } from "../rows";
import { DATA } from "../version";
import { CheckField, Done, Field, Page, Problem, Table, type Column } from "../ui";

const FIRST_QUERY = "SELECT Id, Name, LastModifiedDate\nFROM Account\nORDER BY LastModifiedDate DESC\nLIMIT 20";
// As few rows a page as the API gives: more make a table slow.
const PAGE_SIZE = { "Sforce-Query-Options": "batchSize=200" };
const MAX_CSV_ROWS = 50_000;
let lastQuery = FIRST_QUERY;

interface Found {
  columns: string[];
  rows: SObject[];
  total: number;
  next: string;
  tookMs: number;
}

interface Mistake {
  text: string;
  /** Where in the query it is, counted from 1; null if the server did not say. */
  row: number | null;
  column: number | null;
}

export function QueryPageView(): JSX.Element {
  const { api } = useConsole();
  const [, given] = useRoute();
  const [soql, setSoql] = useState(given ?? lastQuery);
  const [isAll, setAll] = useState(false);
  const [isTooling, setTooling] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [found, setFound] = useState<Found | null>(null);
  const [mistake, setMistake] = useState<Mistake | null>(null);
  /** What is to be known of the file that was saved last. */
  const [saved, setSaved] = useState("");
  const editor = useRef<HTMLTextAreaElement>(null);

  const attempt = async (ask: () => Promise<QueryPage>, before: Found | null): Promise<void> => {
    setBusy(true);
    setMistake(null);
    setSaved("");
    const beganMs = performance.now();
    try {
      const page = await ask();
      setFound(addPage(before, page, performance.now() - beganMs));
    } catch (error) {
      const told = parseMistake(error);
      setMistake(told);
      setFound(before);
      select(editor.current, told);
    }
    setBusy(false);
  };
  const run = (): void => {
    lastQuery = soql;
    const resource = isTooling ? "tooling/query" : isAll ? "queryAll" : "query";
    const path = `${DATA}/${resource}?q=${encodeURIComponent(soql)}`;
    void attempt(() => api.call<QueryPage>("GET", path, undefined, PAGE_SIZE), null);
  };
  const download = async (shown: Found): Promise<void> => {
    setBusy(true);
    setMistake(null);
    setSaved("");
    try {
      const { rows, isWhole } = await readRest(api, shown);
      saveFile("query.csv", renderCsv(columnsOfAll(rows), rows));
      if (!isWhole) {
        setSaved(`The file holds the first ${formatNumber(rows.length)} of ${formatNumber(shown.total)} rows.`);
      }
    } catch (error) {
      setMistake(parseMistake(error));
    }
    setBusy(false);
  };
  const more = (): void => {
    if (found !== null) {
      void attempt(() => api.call<QueryPage>("GET", found.next, undefined, PAGE_SIZE), found);
    }
  };
  const submit = (event: Event): void => {
    event.preventDefault();
    run();
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  };
  return (
    <Page title="SOQL">
      <form onSubmit={submit}>
        <Field label="Query" hint="Ctrl+Enter runs the query">
          {(ties) => (
            <textarea
              {...ties}
              ref={editor}
              class="code"
              rows={6}
              spellcheck={false}
              value={soql}
              aria-invalid={mistake !== null}
              onInput={(event) => setSoql(event.currentTarget.value)}
              onKeyDown={onKey}
            />
          )}
        </Field>
        <div class="buttons">
          <button type="submit" disabled={isBusy}>
            Run
          </button>
          <CheckField label="Include deleted records" value={isAll} onChange={setAll} />
          <CheckField label="Tooling API" value={isTooling} onChange={setTooling} />
        </div>
      </form>
      {mistake !== null && <MistakeAt mistake={mistake} soql={lastQuery} />}
      {found !== null && (
        <Results found={found} isBusy={isBusy} onMore={more} onDownload={() => void download(found)} />
      )}
      <Done text={saved} />
    </Page>
  );
}

/** All rows of an answer, those not shown yet too, up to as many as a file may hold. */
async function readRest(api: Api, found: Found): Promise<{ rows: SObject[]; isWhole: boolean }> {
  const rows = [...found.rows];
  let next = found.next;
  while (next !== "" && rows.length < MAX_CSV_ROWS) {
    const page = await api.call<QueryPage>("GET", next);
    rows.push(...page.records);
    next = page.done ? "" : (page.nextRecordsUrl ?? "");
  }
  return { rows, isWhole: next === "" };
}

function saveFile(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function Results(props: {
  found: Found;
  isBusy: boolean;
  onMore: () => void;
  onDownload: () => void;
}): JSX.Element {
  const { found } = props;
  const isCount = found.rows.length === 0 && found.total > 0;
  const columns: Column<SObject & { key: number }>[] = found.columns.map((name) => ({
    name,
    cell: (row) => <Cell row={row} name={name} />,
  }));
  return (
    <>
      <p role="status" id="query-summary">
        {isCount
          ? `The count is ${formatNumber(found.total)}`
          : `${formatNumber(found.rows.length)} of ${formatNumber(found.total)} rows`}
        , {Math.round(found.tookMs)} ms
      </p>
      {!isCount && (
        <Table
          id="query-rows"
          label="Results"
          columns={columns}
          rows={found.rows.map((row, key) => ({ ...row, key }))}
          empty="No rows."
          keyOf={(row) => row.key}
        />
      )}
      <p class="buttons">
        {found.next !== "" && (
          <button type="button" disabled={props.isBusy} onClick={props.onMore}>
            Next page
          </button>
        )}
        {found.rows.length > 0 && (
          <button type="button" disabled={props.isBusy} onClick={props.onDownload}>
            Download CSV
          </button>
        )}
      </p>
    </>
  );
}

/** As the API writes it; broken over two lines it is hard to read. */
const DATE_TIME = /^\d{4}-\d\d-\d\dT[\d:.+Z-]+$/;

function Cell(props: { row: SObject; name: string }): JSX.Element {
  const value = valueAt(props.row, props.name);
  const type = props.row.attributes?.type;
  if (props.name === "Id" && typeof value === "string" && type !== undefined) {
    return (
      <a class="id" href={href("objects", type, value)}>
        {value}
      </a>
    );
  }
  if (isSubquery(value)) {
    return <Nested page={value} />;
  }
  const text = formatValue(value);
  return DATE_TIME.test(text) ? <time>{text}</time> : <>{text}</>;
}

/** The rows of a subquery, as a table in a cell. */
function Nested(props: { page: QueryPage }): JSX.Element {
  const { records, totalSize } = props.page;
  const columns = columnsOfAll(records);
  return (
    <table class="nested">
      <thead>
        <tr>
          {columns.map((name) => (
            <th scope="col" key={name}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {records.map((record, index) => (
          <tr key={index}>
            {columns.map((name) => (
              <td key={name}>
                <Cell row={record} name={name} />
              </td>
            ))}
          </tr>
        ))}
        {totalSize > records.length && (
          <tr>
            <td colSpan={columns.length}>and {formatNumber(totalSize - records.length)} more</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

/** The error with the query around it, as the server places it. */
function MistakeAt(props: { mistake: Mistake; soql: string }): JSX.Element {
  const { row, column } = props.mistake;
  const line = row === null ? undefined : props.soql.split("\n")[row - 1];
  return (
    <div class="mistake">
      <Problem text={props.mistake.text} />
      {line !== undefined && column !== null && (
        <pre aria-hidden="true">
          {line}
          {"\n"}
          {" ".repeat(Math.max(0, column - 1))}^
        </pre>
      )}
    </div>
  );
}

function addPage(before: Found | null, page: QueryPage, tookMs: number): Found {
  const rows = [...(before?.rows ?? []), ...page.records];
  return {
    columns: columnsOfAll(rows),
    rows,
    total: page.totalSize,
    next: page.done ? "" : (page.nextRecordsUrl ?? ""),
    tookMs,
  };
}

function parseMistake(error: unknown): Mistake {
  if (!(error instanceof Refused)) {
    return { text: explain(error), row: null, column: null };
  }
  const place = /ERROR at Row:(\d+):Column:(\d+)\n?/.exec(error.message);
  if (place === null) {
    return { text: explain(error), row: null, column: null };
  }
  const [whole, row, column] = place;
  const words = error.message.slice(place.index + whole.length).trim();
  return {
    text: `Row ${row}, column ${column}: ${words} (${error.code})`,
    row: Number(row),
    column: Number(column),
  };
}

/** Put the cursor where the mistake is, on the word that stands there. */
function select(editor: HTMLTextAreaElement | null, mistake: Mistake): void {
  if (editor === null || mistake.row === null || mistake.column === null) {
    return;
  }
  const lines = editor.value.split("\n");
  const before = lines.slice(0, mistake.row - 1).reduce((sum, line) => sum + line.length + 1, 0);
  const start = before + mistake.column - 1;
  const word = /^\w+/.exec(editor.value.slice(start))?.[0] ?? "";
  editor.focus();
  editor.setSelectionRange(start, start + word.length);
}
