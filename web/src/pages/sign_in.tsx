// The way in: a user's name and password, and a connected app's if one is to be used.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Connection } from "../console";
import { fetchDevLogin, signIn, type SignedIn } from "../session";
import { State } from "../shell";
import { LoginRefused } from "../soap";
import type { Store } from "../store";
import { Problem, TextField } from "../ui";

export function SignIn(props: {
  connection: Store<Connection>;
  isAsking: boolean;
  problem: string;
  /** Who is asked to sign in again; empty if it can be anybody. */
  username: string;
  onSignedIn: (session: SignedIn) => void;
}): JSX.Element {
  const { problem, username, onSignedIn } = props;
  return (
    <>
      <header>
        <span class="brand">Tidewire</span>
        <State connection={props.connection} />
      </header>
      <main>
        {props.isAsking ? (
          <Form problem={problem} username={username} onSignedIn={onSignedIn} />
        ) : (
          <h1>Tidewire</h1>
        )}
      </main>
    </>
  );
}

function Form(props: {
  problem: string;
  username: string;
  onSignedIn: (session: SignedIn) => void;
}): JSX.Element {
  const [username, setUsername] = useState(props.username);
  const [password, setPassword] = useState("");
  const [clientId, setClientId] = useState("");
  const [clientSecret, setClientSecret] = useState("");
  const [problem, setProblem] = useState(props.problem);
  const [isBusy, setBusy] = useState(false);
  const [hasDevLogin, setHasDevLogin] = useState(false);
  const form = useRef<HTMLFormElement>(null);

  useLayoutEffect(() => {
    document.title = "Sign in · Tidewire";
    form.current?.querySelector<HTMLInputElement>(username === "" ? "input" : "input[type=password]")?.focus();
    fetchDevLogin().then(
      (offered) => setHasDevLogin(offered !== null),
      () => undefined,
    );
  }, []);

  const attempt = async (work: () => Promise<SignedIn>): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      props.onSignedIn(await work());
    } catch (error) {
      setProblem(error instanceof LoginRefused ? error.message : "The server could not be reached. Try again.");
      setBusy(false);
    }
  };
  const submit = (event: Event): void => {
    event.preventDefault();
    void attempt(() => signIn({ username, password, client_id: clientId, client_secret: clientSecret }));
  };
  const useDevLogin = async (): Promise<SignedIn> => {
    const offered = await fetchDevLogin();
    if (offered === null) {
      throw new LoginRefused("This server offers no development login.");
    }
    return signIn(offered);
  };

  return (
    <form class="card narrow" id="sign-in" ref={form} onSubmit={submit}>
      <h1>Sign in</h1>
      <TextField label="Username" value={username} onChange={setUsername} autocomplete="username" required />
      <TextField
        label="Password"
        type="password"
        value={password}
        onChange={setPassword}
        autocomplete="current-password"
        hint="Append the security token if the server requires one."
        required
      />
      <details>
        <summary>Through a connected app (OAuth)</summary>
        <TextField label="Client id" value={clientId} onChange={setClientId} />
        <TextField label="Client secret" type="password" value={clientSecret} onChange={setClientSecret} />
      </details>
      <Problem text={problem} />
      <div class="buttons">
        <button type="submit" disabled={isBusy}>
          Sign in
        </button>
        {hasDevLogin && (
          <button type="button" disabled={isBusy} onClick={() => void attempt(useDevLogin)}>
            Use the development login
          </button>
        )}
      </div>
    </form>
  );
}
