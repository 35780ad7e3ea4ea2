import { describe, expect, it } from "vitest";
import { terminal, visibleWidth } from "./terminal.ts";

function written(isTTY: boolean, env: NodeJS.ProcessEnv = {}) {
  const pieces: string[] = [];
  const stream = { isTTY, write: (text: string) => pieces.push(text) > 0 };
  return { pieces, out: terminal(stream as unknown as NodeJS.WriteStream, env) };
}

describe("a terminal", () => {
  it("is never given control sequences that a model made", () => {
    const { pieces, out } = written(true);
    out.writeForeign("a\x1b[2Jb\r\tc\n\u009b31m");
    expect(pieces).toEqual(["a\ufffd[2Jb\ufffd\tc\n\ufffd31m"]);
    const file = written(false);
    file.out.writeForeign("a\x1b[2J");
    expect(file.pieces).toEqual(["a\x1b[2J"]);
  });

  it("is coloured, unless it is none, is dumb, or NO_COLOR is set", () => {
    expect(written(true).out.paint("red", "x")).toBe("\x1b[31mx\x1b[39m");
    expect(written(false).out.paint("red", "x")).toBe("x");
    expect(written(true, { NO_COLOR: "1" }).out.paint("red", "x")).toBe("x");
    expect(written(true, { TERM: "dumb" }).out.paint("red", "x")).toBe("x");
  });

  it("does not count colours into a text's width", () => {
    expect(visibleWidth(written(true).out.paint("bold", "four"))).toBe(4);
  });
});
