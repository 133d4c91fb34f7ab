// Channels of one's own: which change or platform events they carry, and with which filter.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Api, Json } from "../api";
import { useConsole } from "../console";
import { readChannels, readMembers, readSelectable, type Channel, type EventChannelSetup } from "../selection";
import { useStore } from "../store";
import { DATA } from "../version";
import {
  Done,
  NotTold,
  OpenForm,
  Problem,
  SaveButtons,
  Section,
  SelectField,
  TextField,
  useLoad,
  useWork,
} from "../ui";
import { EventChannel } from "./event_channel";

async function readSetup(api: Api): Promise<EventChannelSetup> {
  const [channels, members, selectable] = await Promise.all([readChannels(api), readMembers(api), readSelectable(api)]);
  return { channels, members, selectable };
}

interface ChannelDraft {
  id: string;
  name: string;
  label: string;
  type: string;
}

export function EventChannels(): JSX.Element {
  const { api, known } = useConsole();
  const now = useStore(known);
  const [draft, setDraft] = useState<ChannelDraft | null>(null);
  const work = useWork();
  const loaded = useLoad(() => readSetup(api), [api]);
  const change = (what: () => Promise<string>): Promise<void> =>
    work.run(async () => {
      const done = await what();
      loaded.again();
      return done;
    });
  const save = (saved: ChannelDraft): Promise<void> =>
    change(async () => {
      const name = saved.name.endsWith("__chn") ? saved.name : `${saved.name}__chn`;
      const metadata = { label: saved.label, channelType: saved.type };
      const resource = "tooling/sobjects/PlatformEventChannel";
      if (saved.id === "") {
        await api.create(resource, { FullName: name, Metadata: metadata });
      } else {
        const { Metadata: known } = await api.get<{ Metadata: Json }>(`${DATA}/${resource}/${saved.id}`);
        const { urls: _, ...kept } = known;
        await api.update(resource, saved.id, { Metadata: { ...kept, ...metadata } });
      }
      setDraft(null);
      return `${name} saved.`;
    });
  const remove = (channel: Channel): Promise<void> =>
    change(async () => {
      await api.remove("tooling/sobjects/PlatformEventChannel", channel.id);
      return `${channel.name} deleted.`;
    });
  const open = (opened: ChannelDraft | null): void => {
    work.forget();
    setDraft(opened);
  };
  return (
    <Section title="Event channels">
      <p class="quiet">
        A channel of your own carries the change events or the platform events that are its members, filtered if you
        like.
      </p>
      {now.statusRefused !== "" && <NotTold reason="the channels of an org need the permission View Setup" />}
      <Problem text={loaded.problem || (draft === null ? work.problem : "")} />
      <Done text={work.done} />
      {loaded.value?.channels.length === 0 && now.statusRefused === "" && (
        <p class="quiet">No event channels yet.</p>
      )}
      {loaded.value?.channels.map((channel) => (
        <EventChannel
          key={channel.id}
          channel={channel}
          setup={loaded.value as EventChannelSetup}
          isBusy={work.isBusy}
          onChange={(what) => void change(what)}
          onEdit={() => open(channel)}
          onRemove={() => void remove(channel)}
        />
      ))}
      <p>
        <button type="button" onClick={() => open({ id: "", name: "", label: "", type: "data" })}>
          New event channel
        </button>
      </p>
      {draft !== null && (
        <OpenForm key={draft.id} label="Event channel" onSubmit={() => void save(draft)} onCancel={() => open(null)}>
          <TextField
            label="Full name"
            value={draft.name}
            hint="Ends with __chn"
            readOnly={draft.id !== ""}
            onChange={(name) => setDraft({ ...draft, name })}
            required
          />
          <TextField label="Label" value={draft.label} onChange={(label) => setDraft({ ...draft, label })} required />
          {draft.id === "" && (
            <SelectField
              label="Event type"
              value={draft.type}
              options={[
                ["data", "change events"],
                ["event", "platform events"],
              ]}
              onChange={(type) => setDraft({ ...draft, type })}
            />
          )}
          <Problem text={work.problem} />
          <SaveButtons isBusy={work.isBusy} onCancel={() => open(null)} />
        </OpenForm>
      )}
    </Section>
  );
}
