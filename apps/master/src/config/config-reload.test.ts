// holds: config-reload

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProcessCluster, TINY } from "../../test/process-cluster.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-reload-"));
const file = join(folder, "master.yaml");
let cluster: ProcessCluster;

beforeAll(async () => {
  writeFileSync(file, "cors_origins: [https://a.example]\n");
  cluster = await ProcessCluster.start({ workers: 0, masterFlags: ["--config", file] });
});
afterAll(async () => {
  await cluster.close();
  rmSync(folder, { recursive: true });
});

/** Lines about reloads so far. */
function reloads(): Record<string, unknown>[] {
  return cluster.output
    .split("\n")
    .slice(0, -1) // The last line may be incomplete.
    .filter((line) => line.includes("the configuration was "))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** What the master says after the file has this text. */
async function reloaded(text: string): Promise<Record<string, unknown>> {
  const before = reloads().length;
  writeFileSync(file, text);
  cluster.master.kill("SIGHUP");
  await eventually(() => reloads().length > before, "it has read the file again");
  return reloads().at(-1) ?? {};
}

async function allows(origin: string): Promise<boolean> {
  const reply = await fetch(`${cluster.url}/healthz`, { headers: { origin } });
  await reply.text();
  return reply.headers.get("access-control-allow-origin") !== null;
}

/** The answer to a call while another one waits, since there is no worker. */
async function secondOfTwo(): Promise<string> {
  const abort = new AbortController();
  const body = { model: TINY, prompt: "a", max_tokens: 1 };
  const call = () => held(cluster.request("POST", "/api/v1/completions", body, abort.signal));
  const reply = await Promise.race([call(), call()]);
  const text = await reply.text();
  abort.abort();
  return text;
}

test("reload: settings that may change do so at once; others are named", async () => {
  expect([await allows("https://a.example"), await allows("https://b.example")]).toEqual([
    true,
    false,
  ]);
  const said = await reloaded(
    "cors_origins: [https://b.example]\nmax_connections: 7\nmax_wait_ms: 1\ndrain_ms: 5\n",
  );
  expect(said).toMatchObject({
    level: "info",
    changed: expect.arrayContaining(["cors_origins", "drain_ms", "max_wait_ms"]),
    needs_restart: ["max_connections"],
  });
  expect([await allows("https://a.example"), await allows("https://b.example")]).toEqual([
    false,
    true,
  ]);
  // What needs a restart is said again, and what has changed is not.
  const again =
    "cors_origins: [https://b.example]\nmax_connections: 7\nmax_wait_ms: 1\ndrain_ms: 5\n";
  expect(await reloaded(again)).toMatchObject({ changed: [], needs_restart: ["max_connections"] });
});

test("reload: hosts of webhooks, the queue of a model, the judge of moderations", async () => {
  const webhook = () =>
    cluster.request("POST", "/api/v1/webhooks", { url: "http://127.0.0.1:9/hook" });
  const answerOf = async (asked: Promise<Response>) => {
    const reply = await asked;
    return { status: reply.status, text: await reply.text() };
  };
  const judged = () =>
    cluster.request("POST", "/api/v1/moderations", { model: "moderation-judge", input: "a" });
  expect((await answerOf(webhook())).status).toBe(400);
  const names = ["max_queued", "moderation_judge", "webhook_hosts"];
  const said = await reloaded(
    "cors_origins: [https://b.example]\nwebhook_hosts: [127.0.0.1]\nmax_queued: 1\nmoderation_judge: no-such\n",
  );
  expect(said).toMatchObject({ changed: expect.arrayContaining(names) });
  expect((await answerOf(webhook())).status).toBe(200);
  expect((await answerOf(judged())).text).toContain("no-such");
  expect(await secondOfTwo()).toContain("queue");
});

test("reload: a file with faults changes nothing, and all of them are said", async () => {
  const said = await reloaded("cors_orgins: [x]\nmax_calls: none\n");
  expect(said["level"]).toBe("error");
  expect(said["error"]).toMatch(/cors_orgins[\s\S]*cors_origins/);
  expect(said["error"]).toMatch(/max_calls/);
  expect(await allows("https://b.example")).toBe(true);
});

test("reload: the most calls at a time, and the level of the log", async () => {
  expect(await reloaded("max_calls: 1\nmax_wait_ms: 20000\n")).toMatchObject({ level: "info" });
  expect(await secondOfTwo()).toContain("serves 1 calls already");
  expect(await reloaded("log_level: error\n")).toMatchObject({ level: "info" });
  const before = reloads().length;
  expect(await reloaded("log_level: nothing\n")).toMatchObject({ level: "error" });
  cluster.master.kill("SIGHUP");
  await eventually(() => reloads().length === before + 2, "the fault is said twice");
});
