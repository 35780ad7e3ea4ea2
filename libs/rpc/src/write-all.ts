import type { ServerWritableStream } from "@grpc/grpc-js";

/**
 * Answers a call with a stream of replies, with back-pressure, and ends it. Stops and closes the
 * replies when the caller disconnects. Rejects with what the replies throw.
 */
export async function writeAll<Request, Reply>(
  stream: ServerWritableStream<Request, Reply>,
  replies: AsyncIterable<Reply> | Iterable<Reply>,
): Promise<void> {
  for await (const reply of replies) {
    if (stream.cancelled) return;
    if (!stream.write(reply)) await drained(stream);
  }
  stream.end();
}

function drained(stream: ServerWritableStream<unknown, unknown>): Promise<void> {
  if (stream.cancelled) return Promise.resolve();
  return new Promise((resolve) => {
    const events = ["drain", "cancelled", "error", "close"] as const;
    const done = () => {
      for (const event of events) stream.off(event, done);
      resolve();
    };
    for (const event of events) stream.on(event, done);
  });
}
