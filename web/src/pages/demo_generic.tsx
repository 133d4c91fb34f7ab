// The guide's generic streaming page: makes the channel, subscribes, and pushes a message a number of times.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { explain, type Api } from "../api";
import { REPLAY_ALL } from "../client";
import { useConsole } from "../console";
import { Done, Page, Problem, TextField, useWork } from "../ui";
import { DATA } from "../version";
import { MetaLog, Notifications, ReplaySettings, useStream } from "../watching";

const CHANNEL = "/u/TestStreaming";
const MAX_EVENTS = 100;

async function ensureChannel(api: Api): Promise<string> {
  const found = await api.query(`SELECT Id FROM StreamingChannel WHERE Name = '${CHANNEL}'`);
  const [first] = found.records;
  return first === undefined ? api.create("sobjects/StreamingChannel", { Name: CHANNEL }) : String(first["Id"]);
}

export function GenericDemo(): JSX.Element {
  const { api } = useConsole();
  const stream = useStream();
  const [channelId, setChannelId] = useState("");
  const [message, setMessage] = useState("Test message");
  const [count, setCount] = useState("10");
  const [problem, setProblem] = useState("");
  const work = useWork();
  useEffect(() => {
    ensureChannel(api).then(
      (id) => {
        setChannelId(id);
        stream.subscribe(CHANNEL, REPLAY_ALL);
      },
      (error: unknown) => setProblem(explain(error)),
    );
  }, [api, stream]);
  const act = (event: Event): void => {
    event.preventDefault();
    const wanted = Math.min(MAX_EVENTS, Math.max(1, Math.trunc(Number(count)) || 1));
    setCount(String(wanted));
    void work.run(async () => {
      const pushEvents = Array.from({ length: wanted }, () => ({ payload: message, userIds: [] }));
      await api.call("POST", `${DATA}/sobjects/StreamingChannel/${channelId}/push`, { pushEvents });
      return `${wanted} events were pushed.`;
    });
  };
  return (
    <Page
      title="Generic demo"
      intro={`Makes the generic channel ${CHANNEL} if it is missing, pushes messages to it and shows them arrive.`}
    >
      <Problem text={problem} />
      <div class="side">
        <ReplaySettings stream={stream} channel={CHANNEL} channelId={channelId} action="Update Subscription" />
        <form class="card" onSubmit={act}>
          <h2>Generate new events</h2>
          <TextField label="Message" value={message} onChange={setMessage} required />
          <TextField
            label="Number of Events"
            type="number"
            value={count}
            hint={`1 to ${MAX_EVENTS}`}
            onChange={setCount}
            required
          />
          <Problem text={work.problem} />
          <Done text={work.done} />
          <button type="submit" disabled={work.isBusy || channelId === ""}>
            Generate Events
          </button>
        </form>
      </div>
      <Notifications stream={stream} />
      <MetaLog stream={stream} />
    </Page>
  );
}
