import type { ServerWritableStream } from "@grpc/grpc-js";

/**
 * Answers a call with a stream of replies, no faster than the caller takes them, and ends it. Leaves
 * off, and closes the replies, where the caller has gone. Rejects with what the replies throw.
 */
export async function writeAll<Request, Reply>(
  stream: ServerWritableStream<Request, Reply>,
  replies: AsyncIterable<Reply>,
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
