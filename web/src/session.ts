// Who is looking: signing in through the server's own OAuth and SOAP endpoints, and signing out.

import { loginBySoap, LoginRefused } from "./soap";

export interface Login {
  username: string;
  password: string;
  /** Without a connected app the sign-in goes by SOAP, which needs none. */
  client_id: string;
  client_secret: string;
}

export interface SignedIn {
  token: string;
  username: string;
}

const KEPT = "tidewire.session";

/** The development login that the server offers, or null when a person has to sign in. */
export async function fetchDevLogin(): Promise<Login | null> {
  const response = await fetch("/console/session", { cache: "no-store" });
  if (!response.ok) {
    throw new Error(`/console/session answered ${response.status}`);
  }
  const body = (await response.json()) as { dev: Login | null };
  return body.dev;
}

/** Exchange a login for a token. */
export async function signIn(login: Login): Promise<SignedIn> {
  const token = login.client_id ? await signInByOAuth(login) : await loginBySoap(login.username, login.password);
  const session = { token, username: login.username };
  // Kept by this tab alone, so that loading the page again does not ask again.
  sessionStorage.setItem(KEPT, JSON.stringify(session));
  return session;
}

export function keptSession(): SignedIn | null {
  const text = sessionStorage.getItem(KEPT);
  return text === null ? null : (JSON.parse(text) as SignedIn);
}

export function forgetSession(): void {
  sessionStorage.removeItem(KEPT);
}

/** End the session on the server too. */
export async function signOut(session: SignedIn): Promise<void> {
  forgetSession();
  await fetch("/services/oauth2/revoke", {
    method: "POST",
    cache: "no-store",
    body: new URLSearchParams({ token: session.token }),
  }).catch(() => undefined);
}

async function signInByOAuth(login: Login): Promise<string> {
  const response = await fetch("/services/oauth2/token", {
    method: "POST",
    cache: "no-store",
    body: new URLSearchParams({ grant_type: "password", ...login }),
  });
  const body = (await response.json().catch(() => ({}))) as {
    access_token?: string;
    error_description?: string;
  };
  if (response.status >= 400 && response.status < 500) {
    throw new LoginRefused(body.error_description ?? "The server refused this login.");
  }
  if (!response.ok || !body.access_token) {
    throw new Error(`the token endpoint answered ${response.status}`);
  }
  return body.access_token;
}
