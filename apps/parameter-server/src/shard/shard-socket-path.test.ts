import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { removeStaleSockets } from "./shard-socket-path.ts";

/** A process that listens at the path; resolves with what kills it. */
async function listener(path: string): Promise<() => Promise<void>> {
  const script = `require("node:net").createServer().listen(${JSON.stringify(path)}, () => console.log("ready"))`;
  const child = spawn(process.execPath, ["--eval", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout, "data");
  return async () => {
    child.kill("SIGKILL");
    await once(child, "exit");
  };
}

test("sockets of killed processes are removed; those where one listens or that are others' stay", async () => {
  const folder = mkdtempSync(join(tmpdir(), "hps-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  // An id that was a process's and is none any more.
  const { pid: gone } = spawnSync(process.execPath, ["--version"]);
  const stale = join(folder, `heddle-ps-${gone}-1.sock`);
  const other = join(folder, "another.sock");
  for (const path of [stale, other]) await (await listener(path))();
  const heard = createServer().listen(join(folder, `heddle-ps-${gone}-2.sock`));
  const own = createServer().listen(join(folder, `heddle-ps-${process.pid}-1.sock`));
  onTestFinished(() => {
    heard.close();
    own.close();
  });
  await Promise.all([once(heard, "listening"), once(own, "listening")]);
  expect(existsSync(stale)).toBe(true);
  expect(await removeStaleSockets(folder)).toBe(1);
  expect(readdirSync(folder).sort()).toEqual(
    ["another.sock", `heddle-ps-${gone}-2.sock`, `heddle-ps-${process.pid}-1.sock`].sort(),
  );
});
