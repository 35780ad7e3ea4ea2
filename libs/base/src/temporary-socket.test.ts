import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ownSocketPath, removeStaleSockets, sharedSocketPath } from "./temporary-socket.ts";

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
  const at = (name: string) => join(folder, name);
  const stale = [`heddle-ps-${gone}-1.sock`, `heddle-data-${gone}-a1.sock`].map(at);
  const shared = ["heddle-shared-a-0.sock", "heddle-shared-a-0.sock.1"].map(at);
  const young = at("heddle-shared-b-0.sock");
  const other = at("another.sock");
  for (const path of [...stale, ...shared, young, other]) await (await listener(path))();
  const hourAgo = Date.now() / 1_000 - 3_600;
  for (const path of shared) utimesSync(path, hourAgo, hourAgo);
  const kept = [
    `heddle-ps-${gone}-2.sock`,
    `heddle-ps-${process.pid}-1.sock`,
    "heddle-shared-c.sock",
  ];
  const heard = kept.map((name) => createServer().listen(at(name)));
  onTestFinished(() => {
    for (const server of heard) server.close();
  });
  await Promise.all(heard.map((server) => once(server, "listening")));
  utimesSync(at("heddle-shared-c.sock"), hourAgo, hourAgo);
  expect(await removeStaleSockets(folder)).toBe(4);
  expect(readdirSync(folder).sort()).toEqual(
    ["another.sock", "heddle-shared-b-0.sock", ...kept].sort(),
  );
});

test("sockets have names by which whoever comes later knows whether their process is gone", () => {
  const paths = [ownSocketPath("ps"), ownSocketPath("data"), ownSocketPath("data")];
  expect(new Set(paths).size).toBe(3);
  for (const path of paths) expect(path).toContain(`-${process.pid}-`);
  expect(sharedSocketPath("key-0")).toBe(join(tmpdir(), "heddle-shared-key-0.sock"));
});
