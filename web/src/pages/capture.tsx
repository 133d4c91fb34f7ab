// Change Data Capture: which objects' changes are published on the standard channel.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Api } from "../api";
import { useConsole } from "../console";
import { addMember, entityOf, readMembers, readSelectable, removeMember, STANDARD_CHANNEL } from "../selection";
import { useStore } from "../store";
import { Done, Field, NotTold, Page, Problem, TextField, useLoad, useWork } from "../ui";

interface Choice {
  event: string;
  /** As in `Account (Account)`. */
  text: string;
}

interface Selection {
  choices: Choice[];
  selected: string[];
}

async function readSelection(api: Api): Promise<Selection> {
  const [objects, selectable, members] = await Promise.all([api.objects(), readSelectable(api), readMembers(api)]);
  const labels = new Map(objects.map((entry) => [entry.name, entry.label]));
  const choices = selectable.changes.map((event) => {
    const entity = entityOf(event);
    return { event, text: `${labels.get(entity) ?? entity} (${entity})` };
  });
  return {
    choices: choices.sort((a, b) => a.text.localeCompare(b.text)),
    selected: members.filter((member) => member.channel === STANDARD_CHANNEL).map((member) => member.event),
  };
}

/** Bring the standard channel's members in line with what was chosen; says how many were added and removed. */
async function saveSelection(api: Api, wanted: readonly string[]): Promise<string> {
  const members = (await readMembers(api)).filter((member) => member.channel === STANDARD_CHANNEL);
  const gone = members.filter((member) => !wanted.includes(member.event));
  const known = new Set(members.map((member) => member.event));
  const fresh = wanted.filter((event) => !known.has(event));
  for (const member of gone) {
    await removeMember(api, member.id);
  }
  for (const event of fresh) {
    await addMember(api, STANDARD_CHANNEL, event);
  }
  return `Saved: ${fresh.length} added, ${gone.length} removed.`;
}

export function Capture(): JSX.Element {
  const { api, known } = useConsole();
  const now = useStore(known);
  const loaded = useLoad(() => readSelection(api), [api]);
  const [selected, setSelected] = useState<readonly string[]>([]);
  const [filter, setFilter] = useState("");
  const work = useWork();
  useEffect(() => setSelected(loaded.value?.selected ?? []), [loaded.value]);

  const choices = loaded.value?.choices ?? [];
  const isWanted = (choice: Choice): boolean => choice.text.toLowerCase().includes(filter.trim().toLowerCase());
  const available = choices.filter((choice) => !selected.includes(choice.event) && isWanted(choice));
  const chosen = choices.filter((choice) => selected.includes(choice.event));
  const saved = loaded.value?.selected ?? [];
  const isChanged = saved.length !== selected.length || saved.some((event) => !selected.includes(event));
  const save = (): Promise<void> =>
    work.run(async () => {
      try {
        return await saveSelection(api, selected);
      } finally {
        loaded.again();
      }
    });
  if (now.statusRefused !== "") {
    return (
      <Page title="Change Data Capture">
        <NotTold reason="what is selected needs the permission View Setup" />
      </Page>
    );
  }
  return (
    <Page
      title="Change Data Capture"
      intro="Changes of the selected entities are published on /data/ChangeEvents and on each entity's own channel."
    >
      <Problem text={loaded.problem || work.problem} />
      <Done text={work.done} />
      <TextField label="Filter available entities" type="search" value={filter} onChange={setFilter} />
      <div class="picker">
        <Picker
          label={`Available entities (${available.length})`}
          action="Add"
          choices={available}
          onMove={(events) => setSelected([...selected, ...events])}
        />
        <Picker
          label={`Selected entities (${chosen.length})`}
          action="Remove"
          choices={chosen}
          onMove={(events) => setSelected(selected.filter((event) => !events.includes(event)))}
        />
      </div>
      <div class="buttons">
        <button type="button" class="first" disabled={!isChanged || work.isBusy} onClick={() => void save()}>
          Save
        </button>
        <button type="button" disabled={!isChanged} onClick={() => setSelected(saved)}>
          Cancel
        </button>
      </div>
    </Page>
  );
}

/** A list from which several can be taken at once, by button, Enter or double click. */
function Picker(props: {
  label: string;
  action: string;
  choices: readonly Choice[];
  onMove: (events: string[]) => void;
}): JSX.Element {
  const [marked, setMarked] = useState<string[]>([]);
  const here = marked.filter((event) => props.choices.some((choice) => choice.event === event));
  const move = (): void => {
    if (here.length === 0) {
      return;
    }
    props.onMove(here);
    setMarked([]);
  };
  return (
    <div>
      <Field label={props.label}>
        {(ties) => (
          <select
            {...ties}
            multiple
            size={12}
            onChange={(event) => setMarked([...event.currentTarget.selectedOptions].map((option) => option.value))}
            onDblClick={move}
            onKeyDown={(event) => event.key === "Enter" && move()}
          >
            {props.choices.map((choice) => (
              <option key={choice.event} value={choice.event} selected={here.includes(choice.event)}>
                {choice.text}
              </option>
            ))}
          </select>
        )}
      </Field>
      <button type="button" disabled={here.length === 0} onClick={move}>
        {props.action}
      </button>
    </div>
  );
}
