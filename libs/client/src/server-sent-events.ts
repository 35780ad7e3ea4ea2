/** One event of a stream; `data` is empty where only the id was told. */
export interface ServerSentEvent {
  /** The latest id of the stream, which a resumed one begins after. */
  readonly id: string | undefined;
  readonly type: string;
  readonly data: string;
}

/** A line longer than this is no event of ours, and is not kept in memory. */
const MAX_LINE_CHARS = 1_048_576;

/**
 * The events of a body, in order (https://html.spec.whatwg.org/multipage/server-sent-events.html).
 * An event that breaks off is not told. Rejects where the body breaks off, or is silent, heartbeats
 * included, for `silenceMs`. Leaving the loop early cancels the body.
 */
export async function* readServerSentEvents(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
): AsyncGenerator<ServerSentEvent, void> {
  let id: string | undefined;
  let type = "message";
  let data: string[] = [];
  for await (const line of readLines(body, silenceMs)) {
    if (line === "") {
      if (data.length > 0 || type === "message") yield { id, type, data: data.join("\n") };
      type = "message";
      data = [];
      continue;
    }
    const [, field, value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === "data") data.push(value);
    else if (field === "event") type = value;
    else if (field === "id" && !value.includes("\0")) id = value;
  }
}

async function* readLines(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
): AsyncGenerator<string, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await within(reader.read(), silenceMs);
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      if (rest.length > MAX_LINE_CHARS) throw new Error("The cluster sent an event without end.");
      yield* lines;
    }
  } finally {
    // A body that broke off rejects again here: that was told already.
    await reader.cancel().catch(() => {});
  }
}

async function within<T>(pending: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`Nothing came for ${ms / 1_000} s.`)), ms);
  });
  try {
    return await Promise.race([pending, late]);
  } finally {
    clearTimeout(timer);
  }
}
