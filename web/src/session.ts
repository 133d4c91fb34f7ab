// Who is looking: the sign-in through the server's own OAuth endpoint.

export interface Login {
  username: string;
  password: string;
  client_id: string;
  client_secret: string;
}

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

/** Exchange a login for an access token. */
export async function signIn(login: Login): Promise<string> {
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
