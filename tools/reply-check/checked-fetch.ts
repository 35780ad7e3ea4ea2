import { ServerSentEventParser } from "@heddle/client/server-sent-events";
import type { CheckedReply, ReplyCheck } from "./reply-check.ts";

/**
 * A `fetch` that checks what the caller reads of a master's replies. It changes neither the bytes
 * nor the time at which they are read; faults go to `onFault`.
 */
export function checkedFetch(
  send: typeof fetch,
  loadCheck: () => Promise<ReplyCheck>,
  onFault: (fault: string) => void,
): typeof fetch {
  return async (input, init) => {
    const response = await send(input, init);
    // Only a master sends an id with every reply; fakes in tests are left alone.
    if (!response.headers.has("x-request-id")) return response;
    const request = input instanceof Request ? input : undefined;
    const reply: CheckedReply = {
      method: (init?.method ?? request?.method ?? "GET").toUpperCase(),
      path: new URL(request?.url ?? String(input)).pathname,
      status: response.status,
      mediaType: (response.headers.get("content-type") ?? "").split(";")[0]!,
    };
    if (!/^(application\/(problem\+)?json|text\/event-stream)$/.test(reply.mediaType))
      return response;
    const check = await loadCheck();
    const report = (fault: string | undefined) => {
      if (fault !== undefined) onFault(fault);
    };
    if (reply.mediaType === "text/event-stream") {
      return watchEvents(response, (type, data) => report(check.event(reply, type, data)));
    }
    return watchText(response, (text) => report(check.body(reply, text)));
  };
}

function watchText(response: Response, onText: (text: string) => void): Response {
  const text = response.text.bind(response);
  const read = async () => {
    const whole = await text();
    if (whole !== "") onText(whole);
    return whole;
  };
  return Object.assign(response, { text: read, json: async () => JSON.parse(await read()) });
}

function watchEvents(response: Response, onEvent: (type: string, data: string) => void): Response {
  const text = response.text.bind(response);
  const { body } = response;
  let watched: ReadableStream<Uint8Array> | undefined;
  Object.defineProperty(response, "body", {
    get: () => {
      watched ??= body?.pipeThrough(passing(onEvent));
      return watched;
    },
  });
  return Object.assign(response, {
    text: async () => {
      const whole = await text();
      new EventCheck(onEvent).push(new TextEncoder().encode(whole));
      return whole;
    },
  });
}

/** Passes each chunk on when the reader asks for it, so that back-pressure stays as it is. */
function passing(onEvent: (type: string, data: string) => void) {
  const events = new EventCheck(onEvent);
  return new TransformStream<Uint8Array, Uint8Array>(
    {
      transform: (chunk, controller) => {
        events.push(chunk);
        controller.enqueue(chunk);
      },
    },
    { highWaterMark: 1 },
    { highWaterMark: 0 },
  );
}

/** Reads the events of a stream as their bytes pass. */
class EventCheck {
  readonly #parser = new ServerSentEventParser();
  readonly #decoder = new TextDecoder();
  readonly #onEvent: (type: string, data: string) => void;

  constructor(onEvent: (type: string, data: string) => void) {
    this.#onEvent = onEvent;
  }

  push(bytes: Uint8Array): void {
    for (const { type, data } of this.#parser.push(this.#decoder.decode(bytes, { stream: true }))) {
      this.#onEvent(type, data);
    }
  }
}
