// holds: raft-scripts

import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { runRaftScript } from "./raft-script.ts";
import { runScript } from "./run-script.ts";

const OWN_SCRIPTS = new URL("../../testdata/", import.meta.url).pathname;

/** Where scripts from elsewhere lie: raft/ in this folder. */
const DATA_FOLDER = process.env["HEDDLE_TEST_DATA"];

function scriptsIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".txt"))
    .sort();
}

/** Log lines are for people and may be worded differently. */
function withoutLogLines(text: string): string {
  const lines = text.split("\n").filter((line) => !/^ *(DEBUG|INFO|WARN|ERROR) /.test(line));
  return lines.join("\n");
}

/** A script as its author writes it, before there is any output. */
function withoutOutputs(text: string): string {
  return text.replace(/^----\n(?:.+\n)*/gm, "----\n");
}

describe("our own scripts print as they are", () => {
  const names = scriptsIn(OWN_SCRIPTS);
  it("there are some", () => expect(names.length).toBeGreaterThanOrEqual(7));
  it.each(names)("%s", (name) => {
    const text = readFileSync(join(OWN_SCRIPTS, name), "utf8");
    expect(runRaftScript(text)).toBe(text);
    expect(runRaftScript(withoutOutputs(text))).toBe(text);
  });
});

if (DATA_FOLDER === undefined) {
  console.log(
    "the scripts from elsewhere are skipped: set HEDDLE_TEST_DATA to the folder of raft/",
  );
}

describe.skipIf(DATA_FOLDER === undefined)("scripts from elsewhere print as they are", () => {
  const folder = join(DATA_FOLDER ?? "", "raft");
  const names = DATA_FOLDER === undefined ? ["none"] : scriptsIn(folder);
  it.each(names)("%s", (name) => {
    const text = readFileSync(join(folder, name), "utf8");
    expect(withoutLogLines(runRaftScript(text))).toBe(withoutLogLines(text));
    expect(withoutLogLines(runRaftScript(withoutOutputs(text)))).toBe(withoutLogLines(text));
  });
});

describe("a data-driven script", () => {
  const echo = (text: string) =>
    runScript(text, ({ command, args, input }) =>
      command === "blank" ? "one\n\ntwo\n" : `${JSON.stringify(args)} ${JSON.stringify(input)}`,
    );

  it("gets separators twice around output that has blank lines", () => {
    const once = "blank\n----\n----\none\n\ntwo\n----\n----\n\nblank\n----\n";
    const full = "blank\n----\n----\none\n\ntwo\n----\n----\n";
    expect(echo(once)).toBe(`${full}\n${full}`);
    expect(echo(`${full}\n${full}`)).toBe(`${full}\n${full}`);
  });

  it("keeps comments, blank lines and input, and ends with one newline", () => {
    const text = "# why\n\n\n  cmd\nin put\n\nmore\n----\nold\n\n\n# end\n\n";
    expect(echo(text)).toBe(
      `# why\n\n\n  cmd\nin put\n\nmore\n----\n[] "in put\\n\\nmore"\n\n\n# end\n`,
    );
  });

  it("joins a command that continues after a backslash", () => {
    const out = echo("cmd a \\\n  b\n----\n");
    expect(out).toBe('cmd a \\\n  b\n----\n[{"key":"a","values":[]},{"key":"b","values":[]}] ""\n');
  });

  it("reads lists, inner parentheses and empty values", () => {
    const out = echo("cmd a=(1, (2,3), 4) b= c=x\n----\n");
    expect(out).toContain(
      '[{"key":"a","values":["1","(2,3)","4"]},{"key":"b","values":[""]},{"key":"c","values":["x"]}]',
    );
  });

  it("says which line cannot be run", () => {
    expect(() => runRaftScript("# x\n\nraft-log 7\n----\n")).toThrow(
      "line 3: raft-log 7: there is no node 7; add it with add-nodes",
    );
    expect(() => runRaftScript("add-nodes 2 voters=(1\n----\n")).toThrow("line 1");
  });

  it("prints the error of a command that fails as its output", () => {
    expect(runRaftScript("add-nodes 1 voters=(1) index=1\n----\n")).toContain(
      "index must be specified as > 1 due to bootstrap",
    );
    expect(runRaftScript("simple\nx1\n----\n")).toContain("unknown input: x1\n");
    expect(runRaftScript("simple\nv\n----\n")).toContain("unknown token v\n");
    expect(runRaftScript("simple\nvx\n----\n")).toContain('parsing "x": invalid syntax\n');
    expect(runRaftScript("log-level loud\n----\n")).toContain("log levels must be either of");
    expect(runRaftScript("dance\n----\n")).toBe("dance\n----\nunknown command\n");
  });
});

describe("the command", () => {
  const { pathname: tool } = new URL("../../../../tools/raft-script.ts", import.meta.url);
  const run = (...args: string[]) =>
    spawnSync(process.execPath, [tool, ...args], { encoding: "utf8" });

  it("prints a script to standard output", () => {
    const file = join(OWN_SCRIPTS, "quorum.txt");
    expect(run(file).stdout).toBe(readFileSync(file, "utf8"));
  });

  it("says which file cannot be run, and why", () => {
    const { status, stderr } = run("no-such-file.txt");
    expect(status).toBe(1);
    expect(stderr).toContain("cannot run no-such-file.txt: ENOENT");
  });

  it("prints its usage when the file is missing", () => {
    const { status, stderr } = run();
    expect(status).toBe(2);
    expect(stderr).toContain("npm run raft:script -- FILE");
  });
});
