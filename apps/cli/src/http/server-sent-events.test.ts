import { describe, expect, it } from "vitest";
import { readServerSentEvents } from "./server-sent-events.ts";

const STREAM =
  ': comment\ndata: {"a":"ü→"}\n\nevent: x\r\ndata: one\r\ndata: two\r\n\r\ndata:no space\n\ndata: cut off';

async function read(chunks: readonly Uint8Array[]): Promise<string[]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  const events: string[] = [];
  for await (const data of readServerSentEvents(body)) events.push(data);
  return events;
}

describe("server-sent events", () => {
  const bytes = new TextEncoder().encode(STREAM);
  const expected = ['{"a":"ü→"}', "one\ntwo", "no space"];

  it("are read alike wherever the network cuts them, inside characters and line ends too", async () => {
    for (let cut = 0; cut <= bytes.length; cut++) {
      expect(await read([bytes.slice(0, cut), bytes.slice(cut)]), `cut at ${cut}`).toEqual(
        expected,
      );
    }
    expect(await read(Array.from(bytes, (byte) => Uint8Array.of(byte)))).toEqual(expected);
  });

  it("leave no memory to a line without end", async () => {
    const endless = new Uint8Array(2_000_000).fill(97);
    await expect(read([endless])).rejects.toThrow("an event without end");
  });
});
