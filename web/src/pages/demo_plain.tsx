// Any channel by its name: Subscribe, Unsubscribe, and what happens in between.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { href, useRoute } from "../route";
import { useStore } from "../store";
import { parseReplayFrom } from "../stream";
import { Page, Problem, TextField } from "../ui";
import { MetaLog, NO_REPLAY_ID, Notifications, ReplayField, Subscribed, useStream } from "../watching";

export function PlainDemo(): JSX.Element {
  const [, , given] = useRoute();
  const stream = useStream();
  const [channel, setChannel] = useState(given ?? "/data/ChangeEvents");
  const [from, setFrom] = useState("-1");
  const [problem, setProblem] = useState("");
  const subscribed = useStore(stream.channel);
  const subscribe = (event: Event): void => {
    event.preventDefault();
    const replayFrom = parseReplayFrom(from);
    setProblem(replayFrom === null ? NO_REPLAY_ID : "");
    if (replayFrom !== null) {
      // Found again after a reload, or when another session goes on here.
      history.replaceState(null, "", href("demo", "plain", channel.trim()));
      stream.subscribe(channel.trim(), replayFrom);
    }
  };
  return (
    <Page title="Any channel" intro="Push topics, generic channels, change events and platform events alike.">
      <form class="card" onSubmit={subscribe}>
        <TextField
          label="Channel"
          value={channel}
          hint="As in /topic/Name, /u/Name, /data/AccountChangeEvent or /event/Name__e"
          onChange={setChannel}
          required
        />
        <ReplayField value={from} onChange={setFrom} />
        <Problem text={problem} />
        <div class="buttons">
          <button type="submit">Subscribe</button>
          <button type="button" disabled={subscribed === ""} onClick={() => stream.unsubscribe()}>
            Unsubscribe
          </button>
          <Subscribed stream={stream} />
        </div>
      </form>
      <Notifications stream={stream} />
      <MetaLog stream={stream} />
    </Page>
  );
}
