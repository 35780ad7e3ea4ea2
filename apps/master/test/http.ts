import { type ServerSentEvent, ServerSentEventParser } from "@heddle/client/server-sent-events";

interface Target {
  readonly url: string;
  readonly adminKey: string;
}

interface SendOptions {
  readonly key?: string;
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Posts to the chat route as the administrator, or with the given key. */
export function postChat(
  target: Target,
  body: unknown,
  options: SendOptions = {},
): Promise<Response> {
  return send(target, "POST", "/api/v1/chat/completions", body, options);
}

export function send(
  target: Target,
  method: string,
  path: string,
  body?: unknown,
  { key = target.adminKey, signal, headers }: SendOptions = {},
): Promise<Response> {
  return fetch(target.url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  });
}

/** The events of a whole server-sent stream; comments are left out. */
export function eventsOf(text: string): ServerSentEvent[] {
  return new ServerSentEventParser().push(text).filter(({ data }) => data !== "");
}
