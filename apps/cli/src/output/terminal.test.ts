import { Writable } from "node:stream";
import { describe, expect, it } from "vitest";
import { drained, terminal, visibleWidth } from "./terminal.ts";

function written(isTTY: boolean, env: NodeJS.ProcessEnv = {}) {
  const pieces: string[] = [];
  const stream = { isTTY, write: (text: string) => pieces.push(text) > 0 };
  return { pieces, out: terminal(stream as unknown as NodeJS.WriteStream, env) };
}

describe("terminal", () => {
  it("removes control sequences of model output", () => {
    const { pieces, out } = written(true);
    out.writeForeign("a\x1b[2Jb\r\tc\n\u009b31m");
    expect(pieces).toEqual(["a\ufffd[2Jb\ufffd\tc\n\ufffd31m"]);
    const file = written(false);
    file.out.writeForeign("a\x1b[2J");
    expect(file.pieces).toEqual(["a\x1b[2J"]);
  });

  // holds: cli-foreign-text
  it("passes colours, and no control sequence that the command does not send itself", () => {
    const { pieces, out } = written(true);
    const paint = out.paint("red", "x");
    out.write(`${paint}\x1b]0;t\x07\x1b[2J\u009b31m\x1b[8m\r\n\t\x1b`);
    out.redraw("50 %\x1b[2J");
    out.control("\x1b[H");
    const clean = `${paint}\ufffd]0;t\ufffd\ufffd[2J\ufffd31m\ufffd[8m\ufffd\n\t\ufffd`;
    expect(pieces).toEqual([clean, "\r\x1b[2K", "50 %\ufffd[2J", "\x1b[H"]);
    const file = written(false);
    file.out.write("a\x1b[2J");
    expect(file.pieces).toEqual(["a\x1b[2J"]);
  });

  it("uses colours on a terminal, unless it is dumb or NO_COLOR is set", () => {
    expect(written(true).out.paint("red", "x")).toBe("\x1b[31mx\x1b[39m");
    expect(written(false).out.paint("red", "x")).toBe("x");
    expect(written(true, { NO_COLOR: "1" }).out.paint("red", "x")).toBe("x");
    expect(written(true, { TERM: "dumb" }).out.paint("red", "x")).toBe("x");
  });

  it("does not count colours into a text's width", () => {
    expect(visibleWidth(written(true).out.paint("bold", "four"))).toBe(4);
  });
});

describe("a writer that waits for its reader", () => {
  it("continues when the output is consumed, and at an abort, without leaks", async () => {
    const taken: (() => void)[] = [];
    const slow = new Writable({
      highWaterMark: 8,
      write: (_piece, _encoding, done) => taken.push(done),
    }) as unknown as NodeJS.WriteStream;
    const { signal } = new AbortController();
    slow.write("short");
    await drained(slow, signal);
    slow.write("longer than the mark");
    let isThrough = false;
    const through = drained(slow, signal).then(() => {
      isThrough = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isThrough).toBe(false);
    taken[0]?.();
    await new Promise((resolve) => setImmediate(resolve));
    expect(isThrough).toBe(false);
    taken[1]?.();
    await through;
    expect(slow.listenerCount("drain")).toBe(0);
    slow.write("longer than the mark");
    const interrupt = new AbortController();
    const stuck = drained(slow, interrupt.signal);
    interrupt.abort();
    await stuck;
    expect(slow.listenerCount("drain")).toBe(0);
  });
});
