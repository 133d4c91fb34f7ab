// The server at a glance: rates, readers and their lag, what the log keeps, the pipeline, the allocations, and the
// change events as they arrive.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { Chart } from "../chart";
import { useConsole } from "../console";
import { FEED_CHANNEL, type ChangeEvent } from "../feed";
import { formatBytes, formatNumber, formatRate, formatSpan } from "../format";
import { freshness } from "../lake";
import { href } from "../route";
import type { Known, Limits, LogRow, ManagedRow, Sample, StreamRow } from "../sampler";
import { useStore } from "../store";
import { Moment, NotTold, Page, Problem, Section, Table, type Column } from "../ui";

export function Overview(): JSX.Element {
  const { known } = useConsole();
  const now = useStore(known);
  return (
    <Page title="Overview">
      <Problem text={now.problem} />
      {now.statusRefused === "" ? (
        <>
          <Figures now={now} />
          <Charts samples={now.samples} />
        </>
      ) : (
        <NotTold reason={now.statusRefused} />
      )}
      <LiveEvents />
      {now.statusRefused === "" && <Readers now={now} />}
      {now.statusRefused === "" && (
        <Section title="Event log">
          <Table
            label="Event log by family"
            columns={LOG_COLUMNS}
            rows={now.status?.log ?? []}
            empty="No data yet."
            keyOf={(row) => row.family}
          />
        </Section>
      )}
      <Section title="Allocations">
        <Table
          label="Allocations"
          columns={LIMIT_COLUMNS}
          rows={usedLimits(now.limits)}
          empty="No data yet."
          keyOf={(row) => row.name}
        />
      </Section>
    </Page>
  );
}

function Figures(props: { now: Known }): JSX.Element {
  const { status, pipeline, samples } = props.now;
  const last = samples.at(-1);
  const kept = status?.log.reduce((sum, row) => sum + row.events, 0);
  return (
    <dl class="figures">
      <Figure name="Events a second" value={last === undefined ? "–" : formatRate(last.appended)} />
      <Figure name="Delivered a second" value={last === undefined ? "–" : formatRate(last.delivered)} />
      <Figure name="CometD sessions" value={status === null ? "–" : formatNumber(status.sessions.bayeux)} />
      <Figure name="Pub/Sub streams" value={status === null ? "–" : formatNumber(status.sessions.pubsub)} />
      <Figure name="Events kept" value={kept === undefined ? "–" : formatNumber(kept)} />
      <div>
        <dt>Pipeline</dt>
        <dd>
          <a href={href("pipeline")}>
            {pipeline === null ? "not known" : freshness(pipeline)}
          </a>
        </dd>
      </div>
    </dl>
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

function Charts(props: { samples: readonly Sample[] }): JSX.Element {
  const { samples } = props;
  const last = samples.at(-1);
  const drawn = useMemo(
    () => ({
      times: samples.map((sample) => sample.atMs),
      rates: [
        { name: "events", values: samples.map((sample) => sample.appended) },
        { name: "delivered", values: samples.map((sample) => sample.delivered) },
        { name: "REST requests", values: samples.map((sample) => sample.requests) },
      ],
      readers: [
        { name: "sessions and streams", values: samples.map((sample) => sample.sessions) },
        { name: "largest lag", values: samples.map((sample) => sample.worstLag) },
      ],
    }),
    [samples],
  );
  const said =
    last === undefined
      ? "No data yet."
      : `Now ${formatRate(last.appended)} events, ${formatRate(last.delivered)} deliveries and ` +
        `${formatRate(last.requests)} requests a second.`;
  const readers =
    last === undefined
      ? "No data yet."
      : `Now ${formatNumber(last.sessions)} readers, the furthest ${formatNumber(last.worstLag)} positions behind.`;
  return (
    <div class="charts">
      <Chart title="Rates, a second" summary={said} times={drawn.times} lines={drawn.rates} />
      <Chart title="Readers" summary={readers} times={drawn.times} lines={drawn.readers} />
    </div>
  );
}

const EVENT_COLUMNS: readonly Column<ChangeEvent>[] = [
  { name: "Replay id", cell: (event) => event.replayId, isNumber: true },
  { name: "Change", cell: (event) => <strong>{event.changeType}</strong> },
  { name: "Entity", cell: (event) => event.entity },
  {
    name: "Record ids",
    cell: (event) =>
      event.recordIds.slice(0, 5).map((id, index) => (
        <>
          {index > 0 && ", "}
          <a class="id" href={href("objects", event.entity, id)}>
            {id}
          </a>
        </>
      )),
  },
  { name: "Changed fields", cell: (event) => event.fields.join(", ") },
  {
    name: "Committed",
    cell: (event) => <Moment ms={event.committedMs} />,
  },
];

function LiveEvents(): JSX.Element {
  const { events } = useConsole();
  const shown = useStore(events.shown);
  const received = useStore(events.received);
  const isPaused = useStore(events.isPaused);
  return (
    <Section title="Live change events">
      <p class="bar">
        <span>
          <output id="count">{received}</output> received from <code>{FEED_CHANNEL}</code>, newest first
        </span>
        <button type="button" aria-pressed={isPaused} onClick={() => events.pause(!isPaused)}>
          Pause
        </button>
      </p>
      <Table
        isTall
        id="rows"
        label="Live change events"
        columns={EVENT_COLUMNS}
        rows={shown}
        empty="No events yet. Create or change a record of a selected object."
        keyOf={(event) => event.replayId}
      />
    </Section>
  );
}

const STREAM_COLUMNS: readonly Column<StreamRow>[] = [
  { name: "Channel", cell: (row) => row.topic },
  { name: "Protocol", cell: (row) => (row.protocol === "bayeux" ? "CometD" : "Pub/Sub") },
  { name: "User", cell: (row) => row.username },
  { name: "Lag", cell: (row) => formatNumber(row.lag), isNumber: true },
  { name: "Client", cell: (row) => row.client_id },
];

const MANAGED_COLUMNS: readonly Column<ManagedRow>[] = [
  { name: "Managed subscription", cell: (row) => row.name },
  { name: "Channel", cell: (row) => row.topic },
  { name: "State", cell: (row) => `${row.state}${row.is_read ? ", being read" : ""}` },
  { name: "Lag", cell: (row) => (row.lag === null ? "–" : formatNumber(row.lag)), isNumber: true },
];

function Readers(props: { now: Known }): JSX.Element {
  const { status } = props.now;
  return (
    <Section title="Subscriptions">
      <p class="quiet">Lag is in positions of the log, 0 is caught up. Of many, those furthest behind are shown.</p>
      <Table
        label="Subscriptions"
        columns={STREAM_COLUMNS}
        rows={status?.streams ?? []}
        empty={status === null ? "No data." : "No open subscriptions."}
        keyOf={(row) => `${row.client_id} ${row.topic}`}
      />
      {(status?.managed.length ?? 0) > 0 && (
        <Table
          label="Managed subscriptions"
          columns={MANAGED_COLUMNS}
          rows={status?.managed ?? []}
          empty=""
          keyOf={(row) => row.name}
        />
      )}
    </Section>
  );
}

const FAMILIES: Record<string, string> = {
  push_topic: "Push topics",
  generic: "Generic",
  platform: "Platform events",
  change: "Change events",
};

const LOG_COLUMNS: readonly Column<LogRow>[] = [
  { name: "Family", cell: (row) => FAMILIES[row.family] ?? row.family },
  {
    name: "Events kept",
    cell: (row) => `${row.is_counted ? "" : "over "}${formatNumber(row.events)}`,
    isNumber: true,
  },
  { name: "Payload", cell: (row) => formatBytes(row.payload_bytes), isNumber: true },
  { name: "Oldest", cell: (row) => (row.oldest_ms === null ? "–" : <Moment ms={row.oldest_ms} />) },
  { name: "Retention", cell: (row) => (row.kept_hours > 0 ? formatSpan(row.kept_hours * 3_600_000) : "for ever") },
];

interface LimitRow {
  name: string;
  max: number;
  used: number;
}

/** Allocations that this server counts: those with a maximum. */
function usedLimits(limits: Limits | null): LimitRow[] {
  return Object.entries(limits ?? {})
    .filter(([, limit]) => limit.Max > 0)
    .map(([name, limit]) => ({ name, max: limit.Max, used: limit.Max - limit.Remaining }));
}

const LIMIT_COLUMNS: readonly Column<LimitRow>[] = [
  { name: "Allocation", cell: (row) => row.name },
  { name: "Used", cell: (row) => formatNumber(row.used), isNumber: true },
  { name: "Of", cell: (row) => formatNumber(row.max), isNumber: true },
  {
    name: "Share",
    cell: (row) => <meter min={0} max={row.max} value={row.used} aria-label={`${row.name} used`} />,
  },
];
