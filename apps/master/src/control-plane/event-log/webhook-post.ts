import { createHmac, type KeyObject } from "node:crypto";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { isIP } from "node:net";
import { AppError } from "@heddle/base/errors";
import { checkedLookup, isPublicAddress } from "@heddle/base/network/public-address";

/** For the look-up, the connection, TLS and the whole answer. */
const TIMEOUT_MS = 15_000;
const SECRET_PREFIX = "whsec_";

/** Which hosts webhooks may call: public ones over TLS, and those that the operator lists. */
export class WebhookHosts {
  readonly #listed: () => readonly string[];

  /** The list may change. */
  constructor(listed: () => readonly string[]) {
    this.#listed = listed;
  }

  /** Throws `invalid_value` for a URL that is never called. */
  check(url: URL): void {
    const host = hostOf(url);
    const isListed = this.#has(host);
    const isTls = url.protocol === "https:";
    if (url.username || url.password) throw refused("it has a user or a password; leave them out");
    if (!isTls && !isListed) {
      throw refused(`${host} is called by https:// only, unless --webhook-hosts lists it`);
    }
    const fault = isIP(host) && !isListed ? addressFault(host, host) : undefined;
    if (fault) throw fault;
  }

  #has(host: string): boolean {
    return this.#listed().some((listed) => listed.toLowerCase() === host.toLowerCase());
  }

  readonly lookup = checkedLookup((host, address) =>
    this.#has(host) ? undefined : addressFault(host, address),
  );
}

/** What is sent, after https://www.standardwebhooks.com. */
export interface WebhookMessage {
  readonly id: string;
  readonly atMs: number;
  readonly body: string;
  /** The current one and, for a day after a rotation, the previous one. */
  readonly secrets: readonly Uint8Array[];
}

/** Resolves when the receiver took it (2xx), else rejects. Redirects are not followed. */
export function postWebhook(url: URL, message: WebhookMessage, hosts: WebhookHosts): Promise<void> {
  hosts.check(url);
  const seconds = String(Math.floor(message.atMs / 1_000));
  const body = Buffer.from(message.body);
  const headers = {
    "content-type": "application/cloudevents+json",
    "content-length": body.byteLength,
    "user-agent": "heddle-webhook",
    "webhook-id": message.id,
    "webhook-timestamp": seconds,
    "webhook-signature": message.secrets
      .map((secret) => `v1,${signatureOf(secret, message.id, seconds, message.body)}`)
      .join(" "),
  };
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const request = url.protocol === "https:" ? httpsRequest : httpRequest;
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const options = { method: "POST", headers, lookup: hosts.lookup, signal, agent: false } as const;
  const call = request(url, options, (response) => {
    const { statusCode = 0 } = response;
    // Nothing of the answer is used.
    response.destroy();
    if (statusCode >= 200 && statusCode < 300) resolve();
    else reject(new Error(`${url.host} answered ${statusCode}`));
  });
  call.once("error", reject);
  call.end(body);
  return promise;
}

/** The secret with that number; all masters and later starts get the same. */
export function webhookSecret(pepper: KeyObject, id: string, number: number): Buffer {
  return createHmac("sha256", pepper).update(`webhook\n${id}\n${number}`).digest();
}

/** As receivers store it. */
export function secretText(secret: Uint8Array): string {
  return SECRET_PREFIX + Buffer.from(secret).toString("base64");
}

function signatureOf(secret: Uint8Array, id: string, seconds: string, body: string): string {
  return createHmac("sha256", secret).update(`${id}.${seconds}.${body}`).digest("base64");
}

function hostOf(url: URL): string {
  return url.hostname.toLowerCase().replace(/^\[|\]$/g, "");
}

function addressFault(host: string, address: string): AppError | undefined {
  if (isPublicAddress(address)) return undefined;
  return refused(`${host} is at ${address}, which is not public; list the host in --webhook-hosts`);
}

function refused(why: string): AppError {
  return new AppError("invalid_value", `Invalid value for 'url': ${why}.`, { param: "url" });
}
