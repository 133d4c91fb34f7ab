// The two calls that only the SOAP API has: a login without a connected app, and taking records out of the recycle bin.

import { Refused } from "./api";
import { API_VERSION } from "./version";

/** The server said no to a login. Anything else that goes wrong (no network, a server starting up) is a plain Error. */
export class LoginRefused extends Error {}

export async function loginBySoap(username: string, password: string): Promise<string> {
  const body = `<n:username>${escapeXml(username)}</n:username><n:password>${escapeXml(password)}</n:password>`;
  const text = await call("login", body, "");
  const fault = textOf(text, "faultstring");
  if (fault !== undefined) {
    throw new LoginRefused(fault.replace(/^[A-Z_]+: /, ""));
  }
  const token = textOf(text, "sessionId");
  if (token === undefined) {
    throw new Error("the SOAP endpoint answered with neither a session nor a fault");
  }
  return token;
}

/** Take a deleted record out of the recycle bin, with all that was deleted along with it. */
export async function undelete(token: string, recordId: string): Promise<void> {
  const text = await call("undelete", `<n:ids>${escapeXml(recordId)}</n:ids>`, token);
  const fault = textOf(text, "faultstring");
  if (fault !== undefined) {
    throw new Refused(500, textOf(text, "faultcode") ?? "", fault);
  }
  if (textOf(text, "success") !== "true") {
    const words = textOf(text, "message") ?? "The record could not be undeleted.";
    throw new Refused(400, textOf(text, "statusCode") ?? "", words);
  }
}

async function call(operation: string, body: string, token: string): Promise<string> {
  const session = `<n:SessionHeader><n:sessionId>${escapeXml(token)}</n:sessionId></n:SessionHeader>`;
  const response = await fetch(`/services/Soap/u/${API_VERSION}`, {
    method: "POST",
    cache: "no-store",
    headers: { "Content-Type": "text/xml; charset=UTF-8", SOAPAction: operation },
    body:
      '<?xml version="1.0" encoding="utf-8"?>' +
      '<env:Envelope xmlns:env="http://schemas.xmlsoap.org/soap/envelope/" xmlns:n="urn:partner.soap.sforce.com">' +
      `<env:Header>${token === "" ? "" : session}</env:Header>` +
      `<env:Body><n:${operation}>${body}</n:${operation}></env:Body></env:Envelope>`,
  });
  return response.text();
}

/** The text of the first element of this name. The page's policy on trusted types forbids the browser's own parser. */
function textOf(xml: string, name: string): string | undefined {
  const found = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1];
  return found === undefined ? undefined : unescapeXml(found);
}

function escapeXml(text: string): string {
  return text.replace(/[<>&"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const NAMED: Record<string, string> = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };

function unescapeXml(text: string): string {
  return text.replace(/&(#\d+|#x[0-9a-f]+|\w+);/gi, (whole: string, name: string) => {
    if (!name.startsWith("#")) {
      return NAMED[name] ?? whole;
    }
    return String.fromCodePoint(/^#x/i.test(name) ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10));
  });
}
