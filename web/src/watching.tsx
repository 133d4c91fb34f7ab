// What the demo pages share: replay settings, what arrived, and the log of the meta channels.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { REPLAY_ALL } from "./client";
import { useConsole } from "./console";
import { useStore } from "./store";
import { parseReplayFrom, Stream, type Arrival, type LogLine } from "./stream";
import { Moment, Problem, Section, Table, TextField, type Column } from "./ui";

const STATES = {
  closed: "Not connected",
  connecting: "Handshaking",
  connected: "Connected",
  broken: "Connection lost, trying again",
} as const;

/** A CometD client of the page's own, from its first drawing until it is left. */
export function useStream(): Stream {
  const { api, onSignedOut } = useConsole();
  const stream = useMemo(() => new Stream(api.token, onSignedOut), [api]);
  useEffect(() => {
    stream.open();
    return () => stream.close();
  }, [stream]);
  return stream;
}

/** From where to read, and the button that makes it so. */
export function ReplaySettings(props: {
  stream: Stream;
  channel: string;
  channelId?: string;
  action: string;
}): JSX.Element {
  const [text, setText] = useState(String(REPLAY_ALL));
  const [problem, setProblem] = useState("");
  const submit = (event: Event): void => {
    event.preventDefault();
    const from = parseReplayFrom(text);
    setProblem(from === null ? NO_REPLAY_ID : "");
    if (from !== null) {
      props.stream.subscribe(props.channel, from);
    }
  };
  return (
    <form class="card" onSubmit={submit}>
      <h2>Replay settings</h2>
      <p>
        Channel: <code>{props.channel}</code>
        {props.channelId !== undefined && props.channelId !== "" && ` (id: ${props.channelId})`}
      </p>
      <ReplayField value={text} onChange={setText} />
      <Problem text={problem} />
      <p class="bar">
        <button type="submit">{props.action}</button>
        <Subscribed stream={props.stream} />
      </p>
    </form>
  );
}

export const NO_REPLAY_ID = "Replay From Id must be -2, -1 or the replay id of an event.";

export function ReplayField(props: { value: string; onChange: (value: string) => void }): JSX.Element {
  return (
    <TextField
      label="Replay From Id"
      value={props.value}
      hint="-2 = earliest, -1 = no replay, or the id of the event to read after"
      onChange={props.onChange}
    />
  );
}

/** How the client stands, and what it reads; or why it does not. */
export function Subscribed(props: { stream: Stream }): JSX.Element {
  const state = useStore(props.stream.state);
  const channel = useStore(props.stream.channel);
  const refusal = useStore(props.stream.refusal);
  return (
    <span role="status" data-channel={channel}>
      {STATES[state]}
      {channel === "" ? ", not subscribed" : `, subscribed to ${channel}`}
      {refusal !== "" && <strong class="problem"> {refusal}</strong>}
    </span>
  );
}

const ARRIVAL_COLUMNS: readonly Column<Arrival>[] = [
  { name: "Replay id", cell: (arrival) => arrival.replayId ?? "", isNumber: true },
  { name: "Type", cell: (arrival) => <strong>{kindOf(arrival)}</strong> },
  {
    name: "Data",
    cell: (arrival) => (
      <>
        <code class="wrap">{JSON.stringify(dataOf(arrival))}</code>
        <details class="whole">
          <summary>Full message</summary>
          <code class="wrap">{JSON.stringify({ channel: arrival.channel, data: arrival.data })}</code>
        </details>
      </>
    ),
  },
  { name: "Received", cell: (arrival) => <Moment ms={arrival.atMs} /> },
];

/** Events as they came, newest first. */
export function Notifications(props: { stream: Stream }): JSX.Element {
  const arrivals = useStore(props.stream.arrivals);
  const arrived = useStore(props.stream.arrived);
  return (
    <Section title="Notifications">
      <p class="quiet">
        <output id="arrived">{arrived}</output> received, newest first
        {arrived > arrivals.length && `; the last ${arrivals.length} are shown`}
      </p>
      <Table
        isTall
        id="notifications"
        label="Notifications"
        columns={ARRIVAL_COLUMNS}
        rows={arrivals}
        empty="No events yet."
        keyOf={(arrival) => arrival.number}
      />
    </Section>
  );
}

const LOG_COLUMNS: readonly Column<LogLine>[] = [
  {
    name: "Message",
    cell: (line) => (
      <>
        <strong>{line.what}</strong>
        {line.times > 1 && ` ${line.times} times`}
      </>
    ),
  },
  { name: "Outcome", cell: (line) => (line.isGood ? "successful" : "failed") },
  { name: "Reply", cell: (line) => <code class="wrap">{line.text}</code> },
  { name: "When", cell: (line) => <Moment ms={line.atMs} /> },
];

/** Handshakes, connects, subscribes and unsubscribes, newest first. */
export function MetaLog(props: { stream: Stream }): JSX.Element {
  const lines = useStore(props.stream.log);
  return (
    <Section title="Handshake, connect and subscribe log">
      <Table
        isTall
        id="meta-log"
        label="Meta channel log"
        columns={LOG_COLUMNS}
        rows={lines}
        empty="No messages yet."
        keyOf={(line) => line.number}
      />
    </Section>
  );
}

function kindOf(arrival: Arrival): string {
  const payload = arrival.data["payload"] as { ChangeEventHeader?: { changeType?: string } } | string | undefined;
  const event = arrival.data["event"] as { type?: string } | undefined;
  const change = typeof payload === "object" ? payload.ChangeEventHeader?.changeType : undefined;
  return change ?? event?.type ?? "event";
}

function dataOf(arrival: Arrival): unknown {
  return arrival.data["sobject"] ?? arrival.data["payload"] ?? arrival.data;
}
