/** One event of a stream; `data` is empty if only the id was sent. */
export interface ServerSentEvent {
  /** The latest id of the stream; a resumed one starts after it. */
  readonly id: string | undefined;
  readonly type: string;
  readonly data: string;
}

/** The cluster sends heartbeats every 15 s, so a stream that is silent for longer is dead. */
export const SILENCE_MS = 45_000;

/** Maximum characters of an event; a longer one is an error. */
const MAX_EVENT_CHARS = 1_048_576;

/** Parses a stream of events (https://html.spec.whatwg.org/multipage/server-sent-events.html). */
export class ServerSentEventParser {
  #rest = "";
  #id: string | undefined;
  #type = "message";
  #data: string[] = [];
  #dataChars = 0;

  /** The events that this piece of the stream completes. Throws for an event that is too long. */
  push(text: string): ServerSentEvent[] {
    const all = this.#rest + text;
    const lines = all.includes("\r") ? all.split(/\r\n|\n|\r(?!$)/) : all.split("\n");
    this.#rest = lines.pop() ?? "";
    const events: ServerSentEvent[] = [];
    for (const line of lines) {
      if (line === "") this.#end(events);
      else this.#read(line);
    }
    if (this.#dataChars + this.#rest.length > MAX_EVENT_CHARS) {
      throw new Error("The cluster sent an event without end.");
    }
    return events;
  }

  #read(line: string): void {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const start = line[colon + 1] === " " ? colon + 2 : colon + 1;
    const value = colon < 0 ? "" : line.slice(start);
    if (field === "data") {
      this.#data.push(value);
      this.#dataChars += value.length;
    } else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
  }

  #end(events: ServerSentEvent[]): void {
    if (this.#data.length > 0 || this.#type === "message") {
      events.push({ id: this.#id, type: this.#type, data: this.#data.join("\n") });
    }
    this.#type = "message";
    this.#data = [];
    this.#dataChars = 0;
  }
}

/**
 * The events of a body, in order; an incomplete event is dropped. Rejects if the body ends early or
 * is silent, without heartbeats, for `silenceMs`. Leaving the loop cancels the body.
 */
export async function* readServerSentEvents(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
): AsyncGenerator<ServerSentEvent, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new ServerSentEventParser();
  try {
    for (;;) {
      const { done, value } = await within(reader.read(), silenceMs);
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    // A broken body rejects again here, which was reported already.
    await reader.cancel().catch(() => {});
  }
}

async function within<T>(pending: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`No data was received for ${ms / 1_000} s.`)), ms);
  });
  try {
    return await Promise.race([pending, late]);
  } finally {
    clearTimeout(timer);
  }
}
