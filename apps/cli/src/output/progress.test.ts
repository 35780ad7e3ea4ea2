import { describe, expect, it } from "vitest";
import { PullProgressView } from "./progress.ts";
import type { Terminal } from "./terminal.ts";

function output(isTty: boolean, columns: number): { text: string; out: Terminal } {
  const seen = { text: "" };
  const write = (piece: string) => {
    seen.text += piece;
  };
  return Object.assign(seen, {
    out: { isTty, columns, write, writeForeign: write, paint: (_: string, t: string) => t },
  });
}

describe("the progress of a pull", () => {
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

  it("is a line for each tenth elsewhere, and nothing while the size is not known", () => {
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
