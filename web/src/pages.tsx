// Which page a route shows, and where the navigation leads.

import type { JSX } from "preact";
import { Capture } from "./pages/capture";
import { Channels } from "./pages/channels";
import { GenericDemo } from "./pages/demo_generic";
import { PlainDemo } from "./pages/demo_plain";
import { TopicDemo } from "./pages/demo_topic";
import { EventTypes } from "./pages/event_types";
import { ObjectList } from "./pages/object_list";
import { ObjectPage } from "./pages/object";
import { Overview } from "./pages/overview";
import { PipelinePage } from "./pages/pipeline";
import { QueryPageView } from "./pages/query";
import { RecordPage } from "./pages/record";
import { Topics } from "./pages/topics";
import { href, type Route } from "./route";
import { Page } from "./ui";

export interface LinkGroup {
  name: string;
  links: readonly { text: string; route: Route }[];
}

export const NAVIGATION: readonly LinkGroup[] = [
  {
    name: "Monitor",
    links: [
      { text: "Overview", route: ["overview"] },
      { text: "Objects", route: ["objects"] },
      { text: "SOQL", route: ["query"] },
      { text: "Pipeline", route: ["pipeline"] },
    ],
  },
  {
    name: "Configure",
    links: [
      { text: "Push topics", route: ["topics"] },
      { text: "Channels", route: ["channels"] },
      { text: "Platform events", route: ["events"] },
      { text: "Change Data Capture", route: ["capture"] },
    ],
  },
  {
    name: "Playground",
    links: [
      { text: "Push topic demo", route: ["demo", "topic"] },
      { text: "Generic demo", route: ["demo", "generic"] },
      { text: "Any channel", route: ["demo", "plain"] },
    ],
  },
];

export function CurrentPage(props: { route: Route }): JSX.Element {
  const [page = "overview", first, second] = props.route;
  switch (page) {
    case "overview":
      return <Overview />;
    case "objects":
      if (first === undefined) {
        return <ObjectList />;
      }
      if (second === undefined) {
        return <ObjectPage key={first} entity={first} />;
      }
      return <RecordPage key={`${first}/${second}`} entity={first} recordId={second === "new" ? "" : second} />;
    case "query":
      return <QueryPageView key={first} />;
    case "topics":
      return <Topics />;
    case "channels":
      return <Channels />;
    case "events":
      return <EventTypes />;
    case "capture":
      return <Capture />;
    case "pipeline":
      return <PipelinePage key={`${first}/${second}`} />;
    case "demo":
      return first === "generic" ? <GenericDemo /> : first === "plain" ? <PlainDemo key={second} /> : <TopicDemo />;
    default:
      return (
        <Page title="No such page">
          <p>
            There is nothing here. <a href={href("overview")}>Go to the overview</a>.
          </p>
        </Page>
      );
  }
}
