import { type ServerSentEvent, ServerSentEventParser } from "@heddle/client/server-sent-events";

interface Target {
  readonly url: string;
  readonly adminKey: string;
}

/** Posts to the chat route as the administrator, or with the given key. */
export function postChat(
  target: Target,
  body: unknown,
  { key = target.adminKey, signal }: { key?: string; signal?: AbortSignal } = {},
): Promise<Response> {
  return send(target, "POST", "/api/v1/chat/completions", body, { key, signal });
}

export function send(
  target: Target,
  method: string,
  path: string,
  body?: unknown,
  { key = target.adminKey, signal }: { key?: string; signal?: AbortSignal | undefined } = {},
): Promise<Response> {
  return fetch(target.url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  });
}

/** The events of a whole server-sent stream; comments are left out. */
export function eventsOf(text: string): ServerSentEvent[] {
  return new ServerSentEventParser().push(text).filter(({ data }) => data !== "");
}
