import { AppError } from "@heddle/base/errors";

/** A line longer than this is no event of ours, and is not kept in memory. */
const MAX_LINE_CHARS = 1_048_576;

/**
 * The data of each server-sent event in a body, in order
 * (https://html.spec.whatwg.org/multipage/server-sent-events.html; names, ids and retries are not
 * used by the inference API). Leaving the loop early cancels the body.
 */
export async function* readServerSentEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<string> {
  let data: string[] = [];
  for await (const line of readLines(body)) {
    if (line === "") {
      if (data.length > 0) yield data.join("\n");
      data = [];
    } else if (line.startsWith("data:")) {
      data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
    }
  }
}

async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE_CHARS) {
      throw new AppError("server_error", "The cluster sent an event without end.");
    }
    yield* lines;
  }
}
