// holds: client-sse

import { describe, expect, it } from "vitest";
import { readServerSentEvents, ServerSentEventParser } from "./server-sent-events.ts";

/** A body of these pieces that breaks off with `error`, if given. */
function body(pieces: readonly string[], error?: Error): ReadableStream<Uint8Array> {
  const bytes = pieces.map((piece) => new TextEncoder().encode(piece));
  return new ReadableStream({
    pull(controller) {
      const next = bytes.shift();
      if (next) controller.enqueue(next);
      else if (error) controller.error(error);
      else controller.close();
    },
  });
}

async function eventsOf(stream: ReadableStream<Uint8Array>, silenceMs = 10_000) {
  const events = [];
  for await (const event of readServerSentEvents(stream, silenceMs)) events.push(event);
  return events;
}

const TEXT =
  'id: 0.0\nretry: 1000\n\n: beat\n\nid: 7.1\nevent: job\ndata: {"a":\ndata: "é"}\n\nevent: progress\ndata: {}\n\n';

describe("server-sent events", () => {
  it("are the same for any split of the bytes", async () => {
    const whole = await eventsOf(body([TEXT]));
    expect(whole.filter(({ data }) => data !== "")).toEqual([
      { id: "7.1", type: "job", data: '{"a":\n"é"}' },
      { id: "7.1", type: "progress", data: "{}" },
    ]);
    expect(whole[0]).toEqual({ id: "0.0", type: "message", data: "" });
    for (let cut = 1; cut < TEXT.length; cut++) {
      const pieces = [TEXT.slice(0, cut), TEXT.slice(cut)];
      expect(await eventsOf(body(pieces)), `cut at ${cut}`).toEqual(whole);
    }
    expect(await eventsOf(body([...TEXT]))).toEqual(whole);
  });

  it("are not returned if they break off before their end", async () => {
    const reported: string[] = [];
    const read = async () => {
      const cut = body(["id: 1\ndata: a\n\nid: 2\ndata: b\n"], new Error("cut"));
      for await (const { id, data } of readServerSentEvents(cut, 10_000))
        reported.push(`${id}${data}`);
    };
    await expect(read()).rejects.toThrow("cut");
    expect(reported).toEqual(["1a"]);
    expect(await eventsOf(body(["id: 2\ndata: b\n"]))).toEqual([]);
  });

  it("are read with any line end, field and comment", () => {
    const text = ": c\r\nevent: x\r\ndata: one\r\ndata:two\r\n\r\rdata\rdata:  a: b\n\n";
    const expected = [
      { id: undefined, type: "x", data: "one\ntwo" },
      { id: undefined, type: "message", data: "" },
      { id: undefined, type: "message", data: "\n a: b" },
    ];
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = new ServerSentEventParser();
      const events = [...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))];
      expect(events, `cut at ${cut}`).toEqual(expected);
    }
  });

  it("are refused if a line or an event has no end", async () => {
    await expect(eventsOf(body(["a".repeat(2_000_000)]))).rejects.toThrow("an event without end");
    const lines = Array.from({ length: 20 }, () => `data: ${"a".repeat(100_000)}\n`);
    await expect(eventsOf(body(lines))).rejects.toThrow("an event without end");
    const events = lines.map((line) => `${line}\n`);
    expect(await eventsOf(body(events))).toHaveLength(20);
  });

  it("are aborted after a silence", async () => {
    const silent = new ReadableStream<Uint8Array>({});
    await expect(eventsOf(silent, 20)).rejects.toThrow("No data was received for 0.02 s.");
  });

  it("cancel the body when the loop is left", async () => {
    let isCancelled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new TextEncoder().encode("data: x\n\n")),
      cancel: () => {
        isCancelled = true;
      },
    });
    for await (const { data } of readServerSentEvents(endless, 10_000)) {
      expect(data).toBe("x");
      break;
    }
    expect(isCancelled).toBe(true);
  });
});
