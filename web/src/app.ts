// The page's one thread of control: sign in, watch until the login stops counting, sign in again.

import { newBookmark, startFeed, type Bookmark } from "./feed";
import { fetchDevLogin, LoginRefused, signIn } from "./session";
import { View } from "./view";

const RETRY_MS = 2_000;

const STATES = {
  connecting: "Connecting",
  connected: "Connected",
  broken: "Connection lost, trying again",
} as const;

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A token, however many attempts it takes. A server that is away or starting up is simply asked again. */
async function obtainToken(view: View): Promise<string> {
  let problem = "";
  for (;;) {
    try {
      const offered = await fetchDevLogin();
      if (offered === null && problem === "") {
        view.setState("signed-out", "Signed out");
      }
      return await signIn(offered ?? (await view.askForLogin(problem)));
    } catch (error) {
      if (error instanceof LoginRefused) {
        problem = error.message;
        view.setState("refused", `Sign-in refused: ${problem}`);
      } else {
        problem = "The server could not be reached. Try again.";
        view.setState("broken", STATES.broken);
      }
      await pause(RETRY_MS);
    }
  }
}

/** Watch with one token. Resolves when the token no longer counts, with how the server put it if it said why. */
function watch(token: string, bookmark: Bookmark, view: View): Promise<string> {
  return new Promise((resolve) => {
    startFeed(token, bookmark, {
      onEvent: (event) => view.add(event),
      onState: (state) => view.setState(state, STATES[state]),
      onSignedOut: () => resolve(""),
      onRefused: (reason) => resolve(reason),
    });
  });
}

async function main(): Promise<void> {
  const view = new View();
  const bookmark = newBookmark();
  for (;;) {
    const token = await obtainToken(view);
    view.showFeed();
    const refusal = await watch(token, bookmark, view);
    if (refusal) {
      view.setState("refused", `Subscription refused: ${refusal}`);
      return;
    }
    view.setState("broken", "Signed out, signing in again");
    await pause(RETRY_MS);
  }
}

void main();
