// holds: plugins-guide

import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { freePort } from "@heddle/base/testing/free-ports";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ShellBlock, shellBlocks } from "../apps/master/test/shell-blocks.ts";

// The commands of the guide for plugins, unchanged but for the port, in an empty home.

const ROOT = join(import.meta.dirname, "..");
const TIMEOUT_MS = 240_000;
const run = promisify(execFile);
const home = mkdtempSync(join(tmpdir(), "heddle-plugin-guide-"));
const BLOCKS = shellBlocks(readFileSync(join(ROOT, "docs/guide/plugins.md"), "utf8"));
const [make, start, ask] = BLOCKS as [ShellBlock, ShellBlock, ShellBlock];
/** The machine's own Node and npm. */
const PATH = (process.env["PATH"] ?? "")
  .split(delimiter)
  .filter((path) => !path.includes("node_modules"))
  .join(delimiter);
const { NODE_COMPILE_CACHE } = process.env;
const env = {
  PATH,
  HOME: home,
  NODE_COMPILE_CACHE,
  HEDDLE_DRAIN_MS: "100",
  HEDDLE_WAL_SEGMENT_MIB: "4",
};
const shell = (text: string, cwd: string) =>
  run("bash", ["-euc", text], { cwd, env, timeout: TIMEOUT_MS, maxBuffer: 2 ** 24 });

let port: number;
beforeAll(async () => {
  port = await freePort();
});
afterAll(() => rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }));

test("plugin's guide: it has three blocks, all run here", () => {
  expect(BLOCKS.map(({ why }) => why)).toEqual(Array(3).fill("tools/plugin-guide.test.ts"));
});

test("plugin's guide: the template's plugin passes its test in a real cluster", async () => {
  const { stdout } = await shell(make.text, ROOT);
  // In a terminal Node prints a tick in place of the number.
  expect(stdout).toMatch(
    /(✔|ok 1 -) the plugin is loaded[\s\S]*(✔|ok 2 -) the route greets[\s\S]*(✔|ok 3 -) a job gets the label/,
  );
  await expect(shell("npm create heddle-plugin ~/greeter", ROOT)).rejects.toMatchObject({
    stderr: expect.stringContaining("is not empty: give a new folder"),
  });
  await expect(shell("npm create heddle-plugin ~/Not.good", ROOT)).rejects.toMatchObject({
    stderr: expect.stringContaining("is no name of a plugin"),
  });
});

test("plugin's guide: a cluster with the plugin answers as the page says", async () => {
  const command = `cd ~/greeter && exec ${start.text} --port ${port}`;
  const cluster = spawn("bash", ["-euc", command], { env, detached: true });
  try {
    await new Promise<void>((resolve, reject) => {
      let output = "";
      const read = (text: Buffer) => {
        output += text.toString();
        if (output.includes("Ctrl-C stops everything")) resolve();
      };
      cluster.stdout.on("data", read);
      cluster.stderr.on("data", read);
      cluster.once("exit", () => reject(new Error(output)));
    });
    const { stdout } = await shell(ask.text.replace(":8080", `:${port}`), home);
    expect(stdout).toMatch(/^greeter +0\.1\.0 +ready +routes,admission/m);
    expect(stdout).toContain('{"text":"Hello, World!","to":"bootstrap administrator"}');
  } finally {
    const ended = new Promise((resolve) => cluster.once("exit", resolve));
    process.kill(-cluster.pid!, "SIGINT");
    await ended;
  }
});

test("plugin's guide: inspect shows the example's digest; a command runs", async () => {
  const page = readFileSync(join(ROOT, "docs/guide/plugins.md"), "utf8");
  const code = /```js\n([\s\S]*?)```/.exec(page)?.[1] ?? "";
  const { stdout } = await shell(
    `cd ~/greeter\ncat > notes.mjs <<'END'\n${code}\nEND\nnpx heddle plugins inspect ./notes.mjs -o json`,
    home,
  );
  expect(JSON.parse(stdout)).toMatchObject({
    name: "notes",
    digest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
    routes: [{ method: "POST", path: "/notes", permission: "jobs:create" }],
  });
  const wrong = shell(
    'npx heddle plugins inspect ./notes.mjs --config \'{"limit":"x"}\'',
    join(home, "greeter"),
  );
  await expect(wrong).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining("config.limit: "),
  });
  const verb = `export default { name: "verbs", version: "1", apiVersion: 1, capabilities: ["commands"], setup({ commands }) {
    commands.add({ name: "sum", summary: "Adds.", run({ args }) { console.log(args.map(Number).reduce((a, b) => a + b)); return 3; } }); } };`;
  const ran = shell(
    `cat > verbs.mjs <<'END'\n${verb}\nEND\nnpx heddle plugins run ./verbs.mjs sum 1 2`,
    join(home, "greeter"),
  );
  await expect(ran).rejects.toMatchObject({ code: 3, stdout: "3\n" });
});
