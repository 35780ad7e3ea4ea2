import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { startArguments } from "@heddle/base/testing/programs";
import { afterEach, beforeEach, expect, test } from "vitest";

// The worker's program by itself: its masters are not there.

const WORKER = startArguments("worker");

let data = "";
let child: ChildProcess | undefined;

beforeEach(() => {
  data = mkdtempSync(join(tmpdir(), "heddle-worker-main-"));
  writeFileSync(join(data, "token"), "a-token-for-this-test-only\n", { mode: 0o600 });
});
afterEach(() => {
  child?.kill("SIGKILL");
  rmSync(data, { recursive: true, force: true });
});

/** Starts the worker and resolves with its line of this message. */
async function start(
  message: string | RegExp,
  flags: readonly string[],
  folder = join(data, "worker"),
): Promise<Readonly<Record<string, string>>> {
  const args = ["--data", folder, "--masters", "127.0.0.1:1"];
  const token = ["--cluster-token-file", join(data, "token")];
  const started = spawn(process.execPath, [...WORKER, ...args, ...token, ...flags], {
    stdio: ["ignore", "pipe", "inherit"],
    cwd: data,
  });
  child = started;
  for await (const line of createInterface({ input: started.stdout })) {
    const record = JSON.parse(line) as Record<string, string>;
    if ((record["msg"] ?? "").search(message) >= 0) return record;
  }
  throw new Error(`the worker ended without a line "${message}"`);
}

test("worker: serves its metrics and health where its ready line says", async () => {
  const { metrics = "" } = await start("ready", ["--simulate-gpus", "2xH100-80GB"]);
  const reply = await fetch(metrics);
  expect(reply.headers.get("content-type")).toContain("version=0.0.4");
  const text = await reply.text();
  expect(text).toContain('heddle_node_attached_masters{service="worker"} 0');
  expect(text).toContain('heddle_node_gpu_faulty{gpu="1",service="worker"} 0');
  expect(text).toContain("process_cpu_seconds_total");
  expect(await (await fetch(new URL("/healthz", metrics))).text()).toBe("ok\n");
  expect((await fetch(new URL("/other", metrics))).status).toBe(404);
  expect((await fetch(metrics, { method: "POST" })).status).toBe(405);
});

test("worker: the plugin of its executor is in its metrics", async () => {
  const from = fileURLToPath(new URL("../../../examples/plugins/local-jobs.mjs", import.meta.url));
  const list = join(data, "plugins.json");
  writeFileSync(list, JSON.stringify({ plugins: [{ from, processes: true }] }));
  const executor = ["--executor", "local-jobs.groups", "--task-isolation", "optional"];
  const { metrics = "" } = await start("ready", ["--plugins", list, ...executor]);
  const text = await (await fetch(metrics)).text();
  expect(text).toContain('heddle_plugin_up{plugin="local-jobs",service="worker"} 1');
  expect(text).toMatch(/heddle_plugin_calls_total{plugin="local-jobs",service="worker"} [1-9]/);
});

test("worker: a taken metrics port is named, and the worker ends", async () => {
  const taken = createServer().listen(0, "127.0.0.1");
  await once(taken, "listening");
  const { port } = taken.address() as AddressInfo;
  const refusal = await start("--metrics-port", ["--metrics-port", String(port)]);
  expect(refusal["msg"]).toContain(`127.0.0.1:${port} is in use`);
  const [code] = (await once(child as ChildProcess, "exit")) as [number];
  expect(code).not.toBe(0);
  taken.close();
});

// holds: task-relative-paths
test("worker: tasks are isolated also where --data and --checkpoints are relative", async () => {
  const flags = ["--checkpoints", "kept"];
  const found = /how tasks are isolated|could read this worker's secrets/;
  const { isolation, reasons } = await start(found, flags, "worker");
  // What this machine lacks may be a reason, but no file that was searched elsewhere.
  expect(isolation).toBeDefined();
  expect(String(reasons)).not.toContain("ENOENT");
});
