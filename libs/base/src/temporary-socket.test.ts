import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ownSocketPath, removeStaleSockets } from "./temporary-socket.ts";

/** A process that listens at the path; resolves with a function that kills it. */
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

test("sockets: those of killed processes are removed, all others stay", async () => {
  const folder = mkdtempSync(join(tmpdir(), "hps-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  // The id of an ended process.
  const { pid: gone } = spawnSync(process.execPath, ["--version"]);
  const at = (name: string) => join(folder, name);
  const stale = [`heddle-ps-${gone}-1.sock`, `heddle-data-${gone}-a1.sock`].map(at);
  const other = at("another.sock");
  for (const path of [...stale, other]) await (await listener(path))();
  const kept = [`heddle-ps-${gone}-2.sock`, `heddle-ps-${process.pid}-1.sock`];
  const received = kept.map((name) => createServer().listen(at(name)));
  onTestFinished(() => {
    for (const server of received) server.close();
  });
  await Promise.all(received.map((server) => once(server, "listening")));
  expect(await removeStaleSockets(folder)).toBe(2);
  expect(readdirSync(folder).sort()).toEqual(["another.sock", ...kept].sort());
});

test("sockets: a name holds the id of the process", () => {
  const paths = [ownSocketPath("ps"), ownSocketPath("data"), ownSocketPath("data")];
  expect(new Set(paths).size).toBe(3);
  for (const path of paths) expect(path).toContain(`-${process.pid}-`);
});
