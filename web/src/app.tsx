// The console's one thread of control: sign in, show pages until the login stops counting, sign in again.

import { render, type JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Api, Refused } from "./api";
import { REPLAY_ALL, REPLAY_NEW } from "./client";
import { Console, ConsoleContext, Events, type Connection } from "./console";
import { newBookmark, startFeed } from "./feed";
import { CurrentPage } from "./pages";
import { SignIn } from "./pages/sign_in";
import { useRoute } from "./route";
import { startSampler, type ServerStatus } from "./sampler";
import {
  fetchDevLogin,
  forgetSession,
  keptSession,
  signIn,
  signOut,
  type Login,
  type SignedIn,
} from "./session";
import { Shell } from "./shell";
import { LoginRefused } from "./soap";
import { Store } from "./store";
import { useWatched } from "./watched";

const RETRY_MS = 2_000;
const LOOK_BACK = 2_000;
const NOT_REACHED = "The server could not be reached. Trying again.";

const STATES = {
  connecting: "Connecting",
  connected: "Connected",
  broken: "Connection lost, trying again",
} as const;

const connection = new Store<Connection>({ state: "starting", text: "Starting" });
const events = new Events();
let bookmark = newBookmark();
let watcher = "";

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The login that development mode offers, asked for until the server answers. */
async function askDevLogin(): Promise<Login | null> {
  for (;;) {
    try {
      return await fetchDevLogin();
    } catch {
      connection.set({ state: "broken", text: NOT_REACHED });
      await pause(RETRY_MS);
    }
  }
}

/**
 * A session that needs no person: the one this tab has already, or the one that development mode offers. When the
 * session of somebody has ended, only they themselves go on: nobody becomes another user by waiting.
 */
async function trySignIn(
  mayUseDev: boolean,
  ended: string,
): Promise<{ session: SignedIn | null; problem: string }> {
  const kept = keptSession();
  if (kept !== null) {
    return { session: kept, problem: "" };
  }
  while (mayUseDev) {
    const offered = await askDevLogin();
    if (offered === null || (ended !== "" && offered.username !== ended)) {
      break;
    }
    try {
      return { session: await signIn(offered), problem: "" };
    } catch (error) {
      if (error instanceof LoginRefused) {
        return { session: null, problem: error.message };
      }
      await pause(RETRY_MS);
    }
  }
  return { session: null, problem: ended === "" ? "" : "Your session has ended. Sign in again." };
}

/** Where a new console begins: some way back, since a whole log may be long. */
async function placeBookmark(api: Api): Promise<void> {
  while (bookmark.replayId === REPLAY_ALL) {
    try {
      const { head } = await api.own<ServerStatus>("status");
      bookmark.replayId = Math.max(0, head - LOOK_BACK);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        return; // the session is over, and the next one asks again
      }
      if (error instanceof Refused && error.status === 403) {
        bookmark.replayId = REPLAY_NEW; // who may not know where the log ends is shown what comes from now on
        return;
      }
      connection.set({ state: "broken", text: STATES.broken });
      await pause(RETRY_MS);
    }
  }
}

/** Show change events as they arrive; returns the way to stop. */
function watchChanges(console: Console): () => void {
  return startFeed(console.session.token, bookmark, {
    onEvent: (event) => events.add(event),
    onState: (state) => connection.set({ state, text: STATES[state] }),
    onSignedOut: () => {
      connection.set({ state: "broken", text: "Signed out, signing in again" });
      setTimeout(console.onSignedOut, RETRY_MS);
    },
    onRefused: (reason) => connection.set({ state: "refused", text: `Change events refused: ${reason}` }),
  });
}

function App(): JSX.Element {
  const [session, setSession] = useState<SignedIn | null>(null);
  const [isAsking, setAsking] = useState(false);
  const [problem, setProblem] = useState("");
  const [mayUseDev, setMayUseDev] = useState(true);
  /** Whose session ended without their doing. */
  const [ended, setEnded] = useState("");

  useEffect(() => {
    if (session !== null) {
      return;
    }
    let isCurrent = true;
    void trySignIn(mayUseDev, ended).then((found) => {
      if (!isCurrent) {
        return;
      }
      if (found.session === null) {
        connection.set({ state: "signed-out", text: "Signed out" });
        setProblem(found.problem);
        setAsking(true);
      } else {
        setSession(found.session);
      }
    });
    return () => {
      isCurrent = false;
    };
  }, [session, mayUseDev, ended]);

  const current = useRef(session);
  current.current = session;
  const leave = (left: SignedIn, byChoice: boolean): void => {
    if (current.current !== left) {
      return; // an answer that came late: that session is over already
    }
    if (byChoice) {
      void signOut(left);
    }
    forgetSession();
    setMayUseDev(!byChoice);
    setEnded(byChoice ? "" : left.username);
    setAsking(byChoice);
    setSession(null);
  };
  if (session !== null) {
    return (
      <SignedInConsole
        key={session.token}
        session={session}
        onLeave={(byChoice) => leave(session, byChoice)}
      />
    );
  }
  const onSignedIn = (signedIn: SignedIn): void => {
    setAsking(false);
    setProblem("");
    setEnded("");
    setSession(signedIn);
  };
  return (
    <SignIn
      connection={connection}
      isAsking={isAsking}
      problem={problem}
      username={ended}
      onSignedIn={onSignedIn}
    />
  );
}

function SignedInConsole(props: { session: SignedIn; onLeave: (byChoice: boolean) => void }): JSX.Element {
  const route = useRoute();
  const console = useMemo(() => {
    const onSignedOut = (): void => props.onLeave(false);
    if (props.session.username !== watcher) {
      // What one user was shown is not for the next.
      watcher = props.session.username;
      bookmark = newBookmark();
      events.clear();
    }
    return new Console(new Api(props.session.token, onSignedOut), props.session, events, onSignedOut);
  }, [props.session]);

  const isWatched = useWatched();
  useEffect(() => startSampler(console.api, console.known), [console]);
  useEffect(() => {
    if (!isWatched) {
      connection.set({ state: "away", text: "Paused while the page is hidden" });
      return;
    }
    let stop = (): void => undefined;
    let isOver = false;
    void placeBookmark(console.api).then(() => {
      if (!isOver) {
        stop = watchChanges(console);
      }
    });
    return () => {
      isOver = true;
      stop();
    };
  }, [console, isWatched]);

  return (
    <ConsoleContext.Provider value={console}>
      <Shell
        route={route}
        connection={connection}
        username={props.session.username}
        onSignOut={() => props.onLeave(true)}
      >
        <CurrentPage route={route} />
      </Shell>
    </ConsoleContext.Provider>
  );
}

const place = document.getElementById("app");
if (place !== null) {
  place.replaceChildren();
  render(<App />, place);
}
