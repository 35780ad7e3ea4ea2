// holds: start-npx

import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** Without this workspace's Node, so that `node` is the machine's own. */
const PATH = (process.env["PATH"] ?? "")
  .split(delimiter)
  .filter((path) => !path.includes("node_modules"))
  .join(delimiter);

test("npx heddle: runs in a clone that is set up", () => {
  const printed = execFileSync("npx", ["heddle", "--version"], { cwd: ROOT, encoding: "utf8" });
  expect(printed).toMatch(/^\d+\.\d+\.\d+$/m);
});

test("bin/heddle.mjs: runs on the machine's own Node, from 20 on", async () => {
  const replicas = [{ node: "w1", phase: "failed", message: "no file" }];
  const models = { data: [{ id: "m-1", status: "failed", replicas }] };
  const server = createServer((_, response) => response.end(JSON.stringify(models)));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    // Groups what has failed, by what only Node 21 and newer have.
    const args = [join(ROOT, "bin/heddle.mjs"), "models", "list", "--endpoint", endpoint];
    const { stdout, stderr } = await promisify(execFile)("node", args, {
      env: { PATH, HOME: process.env["HOME"] },
    });
    expect(stdout).toMatch(/m-1 +failed/);
    expect(stderr).toBe("m-1: failed on w1: no file\n");
  } finally {
    server.close();
  }
});
