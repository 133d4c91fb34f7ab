// Who is looking: signing in through the server's own OAuth and SOAP endpoints, and signing out.

import { API_VERSION } from "./version";

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

/** The server said no to a login. Anything else that goes wrong (no network, a server starting up) is a plain Error. */
export class LoginRefused extends Error {}

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
  const token = login.client_id ? await signInByOAuth(login) : await signInBySoap(login);
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

async function signInBySoap(login: Login): Promise<string> {
  const response = await fetch(`/services/Soap/u/${API_VERSION}`, {
    method: "POST",
    cache: "no-store",
    headers: { "Content-Type": "text/xml; charset=UTF-8", SOAPAction: "login" },
    body:
      '<?xml version="1.0" encoding="utf-8"?>' +
      '<env:Envelope xmlns:env="http://schemas.xmlsoap.org/soap/envelope/"><env:Body>' +
      '<n:login xmlns:n="urn:partner.soap.sforce.com">' +
      `<n:username>${escapeXml(login.username)}</n:username><n:password>${escapeXml(login.password)}</n:password>` +
      "</n:login></env:Body></env:Envelope>",
  });
  const text = await response.text();
  const token = /<sessionId>([^<]+)<\/sessionId>/.exec(text)?.[1];
  if (token !== undefined) {
    return token;
  }
  const fault = /<faultstring>([^<]+)<\/faultstring>/.exec(text)?.[1];
  if (fault !== undefined) {
    throw new LoginRefused(fault.replace(/^[A-Z_]+: /, ""));
  }
  throw new Error(`the SOAP endpoint answered ${response.status}`);
}

function escapeXml(text: string): string {
  return text.replace(/[<>&"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
