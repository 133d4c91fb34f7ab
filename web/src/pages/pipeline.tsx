// The lake that a pipeline keeps: its tables, how fresh they are, what waits or is stale, and the history of a record.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { Chart } from "../chart";
import { useConsole } from "../console";
import { formatNumber, formatRate, formatSpan, formatTime, formatValue } from "../format";
import { countDeadLetters, countStale, failed, freshness, health, replicaState, resyncing, staleness } from "../lake";
import type { LakeStatus, Pipeline, ReplicaRow, Sample } from "../sampler";
import { useStore } from "../store";
import { NotTold, Page, Problem, Section, Table, type Column } from "../ui";
import { History } from "./history";

const SHOWN_APART = [
  "archived",
  "waiting",
  "lag_ms",
  "dead_letters",
  "replicas",
  "dirty",
  "given_up",
  "resyncing",
  "failed",
  "health",
  "problem",
  "unread",
  "table_versions",
  "epoch",
];

// What is larger counts from 1970 and is no span.
const LATEST_SPAN_MS = 1e11;

export function PipelinePage(): JSX.Element {
  const { known } = useConsole();
  const now = useStore(known);
  const { pipeline } = now;
  return (
    <Page title="Pipeline">
      <Problem text={now.problem} />
      {now.pipelineRefused !== "" && <NotTold reason={now.pipelineRefused} />}
      {pipeline === null && now.problem === "" && now.pipelineRefused === "" && <p class="quiet">Loading.</p>}
      {pipeline !== null && pipeline.status === null && <NoLake pipeline={pipeline} />}
      {pipeline !== null && pipeline.status !== null && (
        <Lake pipeline={pipeline} status={pipeline.status} samples={now.samples} />
      )}
    </Page>
  );
}

function NoLake(props: { pipeline: Pipeline }): JSX.Element {
  return (
    <div class="card" id="no-lake">
      <h2>{props.pipeline.state === "unreadable" ? "The lake cannot be read" : "No lake"}</h2>
      <p>{props.pipeline.message}</p>
    </div>
  );
}

function Lake(props: { pipeline: Pipeline; status: LakeStatus; samples: readonly Sample[] }): JSX.Element {
  const { pipeline, status } = props;
  const stale = countStale(status);
  const replicas = status.replicas ?? [];
  const dead = Object.entries(status.dead_letters ?? {});
  return (
    <>
      <p role="status" class={pipeline.state === "running" ? "quiet" : "problem"}>
        {pipeline.message}
      </p>
      <Problem text={status.problem ?? ""} />
      <dl class="figures">
        {status.health !== undefined && <Figure name="Health" value={health(pipeline)} />}
        <Figure name="Freshness" value={freshness(pipeline)} />
        {typeof status.unread === "number" && <Figure name="Not archived yet" value={formatNumber(status.unread)} />}
        <Figure name="Events archived" value={formatNumber(status.archived ?? 0)} />
        <Figure name="Waiting to be applied" value={formatNumber(status.waiting ?? 0)} />
        <Figure name="Stale records" value={formatNumber(stale)} />
        <Figure name="Dead letters" value={formatNumber(countDeadLetters(status))} />
      </dl>
      <Freshness samples={props.samples} />
      <Section title="Tables">
        <Table
          id="lake-tables"
          label="Replica tables"
          columns={replicaColumns(status, replicas)}
          rows={replicas}
          empty="No replica has been made yet."
          keyOf={(row) => row.entity}
        />
        <TableVersions versions={status.table_versions ?? {}} />
      </Section>
      <Section title="Gaps, overflows and resynchronisation">
        <p>
          {staleness(status)} {resyncing(status) || "No object is being read again as a whole."} {failed(status)}
        </p>
        <Table
          label="Dead letters"
          columns={DEAD_COLUMNS}
          rows={dead}
          empty="No dead-lettered events."
          keyOf={([reason]) => reason}
        />
        <dl class="values">
          {Object.entries(status)
            .filter(([name]) => !SHOWN_APART.includes(name))
            .map(([name, value]) => (
              <div key={name}>
                <dt>{inWords(name)}</dt>
                <dd>
                  <Detail name={name} value={value} />
                </dd>
              </div>
            ))}
        </dl>
      </Section>
      <History entities={replicas.map((row) => row.entity)} />
    </>
  );
}

function Figure(props: { name: string; value: string }): JSX.Element {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>{props.value}</dd>
    </div>
  );
}

function inWords(name: string): string {
  if (name === "at_ms") {
    return "Reported at";
  }
  const words = name.replace(/_ms$/, "").replace(/_/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A value of the pipeline status: a word, or a list of named ones. */
function Detail(props: { name: string; value: unknown }): JSX.Element {
  const { name, value } = props;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return <>{formatDetail(name, value)}</>;
  }
  const entries = Object.entries(value);
  return (
    <ul class="details">
      {entries.map(([key, each]) => (
        <li key={key}>
          {key}: {formatDetail(key, each)}
        </li>
      ))}
      {entries.length === 0 && <li>none</li>}
    </ul>
  );
}

function formatDetail(name: string, value: unknown): string {
  if (name.endsWith("_ms") && typeof value === "number") {
    return value > LATEST_SPAN_MS ? formatTime(value) : formatSpan(value);
  }
  return formatValue(value) || "none";
}

/** The state of each replica, with a column for each value of its status. */
function replicaColumns(status: LakeStatus, rows: readonly ReplicaRow[]): Column<ReplicaRow>[] {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => name !== "entity");
  return [
    { name: "Entity", cell: (row) => row.entity },
    { name: "State", cell: (row) => replicaState(status, row) },
    ...names.map((name) => ({
      name: inWords(name),
      cell: (row: ReplicaRow) => formatCount(name, row[name]),
      isNumber: rows.every((row) => typeof (row[name] ?? 0) === "number"),
    })),
  ];
}

/** Positions are ids and keep their digits together; before the first one there is none. */
function formatCount(name: string, value: unknown): string {
  if (typeof value !== "number") {
    return formatValue(value);
  }
  if (!name.endsWith("position")) {
    return formatNumber(value);
  }
  return value < 0 ? "none yet" : String(value);
}

const VERSION_COLUMNS: readonly Column<[string, number]>[] = [
  { name: "Table", cell: ([name]) => <code>{name}</code> },
  { name: "Version", cell: ([, version]) => formatNumber(version), isNumber: true },
];

/** Every Delta table of the lake. */
function TableVersions(props: { versions: Record<string, number> }): JSX.Element {
  const versions = Object.entries(props.versions);
  return (
    <details>
      <summary>All tables of the lake ({versions.length})</summary>
      <Table
        label="All tables"
        columns={VERSION_COLUMNS}
        rows={versions}
        empty="None yet."
        keyOf={([name]) => name}
      />
    </details>
  );
}

const DEAD_COLUMNS: readonly Column<[string, number]>[] = [
  { name: "Dead letters because of", cell: ([reason]) => reason },
  { name: "Events", cell: ([, count]) => formatNumber(count), isNumber: true },
];

function Freshness(props: { samples: readonly Sample[] }): JSX.Element {
  const { samples } = props;
  const last = samples.at(-1);
  const drawn = useMemo(
    () => ({
      times: samples.map((sample) => sample.atMs),
      seconds: [{ name: "seconds", values: samples.map((sample) => sample.lakeLagS) }],
      events: [{ name: "events", values: samples.map((sample) => sample.lakeWaiting) }],
    }),
    [samples],
  );
  const say = (value: number | null | undefined, unit: string): string =>
    value === null || value === undefined ? "No data yet." : `Now ${formatRate(value)} ${unit}.`;
  return (
    <div class="charts">
      <Chart
        title="Freshness: seconds behind"
        summary={say(last?.lakeLagS, "seconds")}
        times={drawn.times}
        lines={drawn.seconds}
      />
      <Chart
        title="Freshness: events waiting"
        summary={say(last?.lakeWaiting, "events")}
        times={drawn.times}
        lines={drawn.events}
      />
    </div>
  );
}
