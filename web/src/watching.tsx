// What the demo pages share: replay settings, what arrived, and the log of the meta channels.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useConsole } from "./console";
import { formatTime } from "./format";
import { useStore } from "./store";
import { parseReplayFrom, Stream, type Arrival, type LogLine } from "./stream";
import { Problem, Section, Table, TextField, type Column } from "./ui";

const STATES = {
  closed: "Not connected",
  connecting: "Shaking hands",
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
export function ReplaySettings(props: { stream: Stream; channel: string; action: string }): JSX.Element {
  const [text, setText] = useState("-1");
  const [problem, setProblem] = useState("");
  const state = useStore(props.stream.state);
  const subscribed = useStore(props.stream.channel);
  const submit = (event: Event): void => {
    event.preventDefault();
    const from = parseReplayFrom(text);
    if (from === null) {
      setProblem("Replay From Id must be -2, -1 or the replay id of an event.");
    } else {
      setProblem("");
      props.stream.subscribe(props.channel, from);
    }
  };
  return (
    <form class="card" onSubmit={submit}>
      <h2>Replay settings</h2>
      <p>
        Channel: <code>{props.channel}</code>
      </p>
      <TextField
        label="Replay From Id"
        value={text}
        hint="-2 = earliest, -1 = no replay, or the id of the event to read after"
        onChange={setText}
      />
      <Problem text={problem} />
      <p class="bar">
        <button type="submit">{props.action}</button>
        <span role="status" data-channel={subscribed}>
          {STATES[state]}
          {subscribed === "" ? ", not subscribed" : `, subscribed to ${subscribed}`}
        </span>
      </p>
    </form>
  );
}

const ARRIVAL_COLUMNS: readonly Column<Arrival>[] = [
  { name: "Replay id", cell: (arrival) => arrival.replayId ?? "", isNumber: true },
  { name: "What", cell: (arrival) => <strong>{kindOf(arrival)}</strong> },
  { name: "Data", cell: (arrival) => <code class="wrap">{JSON.stringify(dataOf(arrival))}</code> },
  { name: "Received", cell: (arrival) => formatTime(arrival.atMs) },
];

/** Events as they came, newest first. */
export function Notifications(props: { stream: Stream }): JSX.Element {
  const arrivals = useStore(props.stream.arrivals);
  return (
    <Section title="Notifications">
      <p class="quiet">
        <output id="arrived">{arrivals.length}</output> shown, newest first
      </p>
      <Table
        id="notifications"
        label="Notifications"
        columns={ARRIVAL_COLUMNS}
        rows={arrivals}
        empty="Nothing has arrived."
        keyOf={(arrival) => arrival.number}
      />
    </Section>
  );
}

const LOG_COLUMNS: readonly Column<LogLine>[] = [
  { name: "Message", cell: (line) => <strong>{line.what}</strong> },
  { name: "Outcome", cell: (line) => (line.isGood ? "successful" : "failed") },
  { name: "Reply", cell: (line) => <code class="wrap">{line.text}</code> },
  { name: "When", cell: (line) => formatTime(line.atMs) },
];

/** Handshakes, connects, subscribes and unsubscribes, newest first. */
export function MetaLog(props: { stream: Stream }): JSX.Element {
  const lines = useStore(props.stream.log);
  return (
    <Section title="Handshake, connect and subscribe log">
      <Table
        id="meta-log"
        label="Meta channel log"
        columns={LOG_COLUMNS}
        rows={lines}
        empty="Nothing was said yet."
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
