import { describe, expect, it } from "vitest";
import { LoadProgressView, PullProgressView } from "./progress.ts";
import { type Terminal, terminal } from "./terminal.ts";

function output(isTty: boolean, columns: number): { text: string; out: Terminal } {
  const seen = { text: "" };
  const write = (piece: string) => {
    seen.text += piece;
  };
  const stream = { isTTY: isTty, columns, write } as unknown as NodeJS.WriteStream;
  return Object.assign(seen, { out: terminal(stream, { NO_COLOR: "1" }) });
}

describe("pull progress", () => {
  it("never wraps on a terminal, however narrow it is and however long the name", () => {
    for (let columns = 40; columns <= 120; columns++) {
      const seen = output(true, columns);
      const view = new PullProgressView(seen.out, `pulling ${"x".repeat(60)}`);
      view.update(50e6, 100e6);
      const line = seen.text.replace("\r\x1b[2K", "");
      expect(line.length, line).toBeLessThan(columns);
      expect(line).toContain("50 % (50.0 of 100.0 MB)");
    }
  });

  it("is a line for each tenth elsewhere, and nothing while the size is unknown", () => {
    const seen = output(false, 80);
    const view = new PullProgressView(seen.out, "pulling x");
    view.update(0, 0);
    for (let percent = 1; percent <= 100; percent++) view.update(percent, 100);
    view.end();
    const lines = seen.text.trimEnd().split("\n");
    expect(lines).toHaveLength(11);
    expect(lines[0]).toMatch(/^pulling x 1 %/);
    expect(lines.at(-1)).toMatch(/^pulling x 100 %/);
  });
});

// holds: start-load-progress
describe("load progress", () => {
  /** The output of the first minutes of a load. */
  function loaded(isTty: boolean, forS: number): string {
    const seen = output(isTty, 80);
    let nowMs = 5;
    const view = new LoadProgressView(seen.out, "loading x ...", () => nowMs);
    for (let i = 0; i < forS * 4; i++) {
      nowMs += 250;
      view.update();
    }
    view.end();
    return seen.text;
  }

  it("is one line with the seconds on a terminal, and few lines elsewhere", () => {
    const drawn = loaded(true, 3);
    expect(drawn).toBe(
      `loading x ...${[1, 2, 3].map((s) => `\r\x1b[2Kloading x ... ${s} s`).join("")}\n`,
    );
    const times = ["", " 10 s", " 30 s", " 60 s", " 120 s", " 180 s"];
    expect(loaded(false, 200)).toBe(times.map((time) => `loading x ...${time}\n`).join(""));
  });
});
