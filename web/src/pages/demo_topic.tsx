// The guide's push topic page: makes the topic, subscribes, and creates, updates and deletes an account.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { explain, type Api } from "../api";
import { REPLAY_ALL } from "../client";
import { useConsole } from "../console";
import { Done, Page, Problem, TextField, useWork } from "../ui";
import { MetaLog, Notifications, ReplaySettings, useStream } from "../watching";

const TOPIC = "TestAccountStreaming";
const CHANNEL = `/topic/${TOPIC}`;
const QUERY = "SELECT Id, Name, Website FROM Account";

async function ensureTopic(api: Api): Promise<void> {
  const found = await api.query(`SELECT Id FROM PushTopic WHERE Name = '${TOPIC}'`);
  if (found.records.length === 0) {
    await api.create("sobjects/PushTopic", {
      Name: TOPIC,
      Query: QUERY,
      ApiVersion: 67.0,
      NotifyForFields: "All",
      NotifyForOperationCreate: true,
      NotifyForOperationUpdate: true,
      NotifyForOperationDelete: true,
      NotifyForOperationUndelete: true,
    });
  }
}

export function TopicDemo(): JSX.Element {
  const { api } = useConsole();
  const stream = useStream();
  const [name, setName] = useState("Test account");
  const [problem, setProblem] = useState("");
  const work = useWork();
  useEffect(() => {
    ensureTopic(api).then(
      () => stream.subscribe(CHANNEL, REPLAY_ALL),
      (error: unknown) => setProblem(explain(error)),
    );
  }, [api, stream]);
  const act = (event: Event): void => {
    event.preventDefault();
    void work.run(async () => {
      const id = await api.create("sobjects/Account", { Name: name });
      await api.update("sobjects/Account", id, { Name: `${name}_UPDATED` });
      await api.remove("sobjects/Account", id);
      return `${id} was created, updated and deleted.`;
    });
  };
  return (
    <Page
      title="Push topic demo"
      intro={`Makes the push topic ${TOPIC} if it is missing, and shows its notifications about accounts.`}
    >
      <Problem text={problem} />
      <div class="side">
        <ReplaySettings stream={stream} channel={CHANNEL} action="Update Subscription" />
        <form class="card" onSubmit={act}>
          <h2>Generate DML events</h2>
          <TextField label="New Account Name" value={name} onChange={setName} required />
          <Problem text={work.problem} />
          <Done text={work.done} />
          <button type="submit" disabled={work.isBusy}>
            Create, Update, Delete New Account
          </button>
        </form>
      </div>
      <Notifications stream={stream} />
      <MetaLog stream={stream} />
    </Page>
  );
}
