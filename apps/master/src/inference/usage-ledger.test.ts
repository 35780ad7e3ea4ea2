// holds: usage-ledger

import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createLogger } from "@heddle/observability/logger";
import { expect, it } from "vitest";
import type { UsageRow } from "./accounting.ts";
import { UsageLedger } from "./usage-ledger.ts";

const row: UsageRow = {
  atMs: Date.UTC(2026, 0, 2),
  requestId: "r",
  key: "k",
  model: "m",
  node: undefined,
  promptTokens: 1,
  cachedTokens: 0,
  completionTokens: 2,
  durationMs: 3,
  errorCode: undefined,
  endUser: undefined,
};

it("usage ledger: rows reach the disk while it is open, also after an idle time", async () => {
  const directory = await mkdtemp(join(tmpdir(), "heddle-ledger-"));
  const ledger = new UsageLedger(directory, createLogger({ service: "test", level: "silent" }));
  const written = async () => {
    const files = await readdir(directory);
    const texts = await Promise.all(files.map((file) => readFile(join(directory, file), "utf8")));
    return texts.join("").split("\n").length - 1;
  };
  await delay(600);
  for (let rows = 1; rows <= 2; rows++) {
    ledger.record(row);
    for (let waited = 0; (await written()) < rows && waited < 30_000; waited += 20) await delay(20);
    expect(await written()).toBe(rows);
  }
  ledger.record(row);
  await ledger.onApplicationShutdown();
  expect(await written()).toBe(3);
  await rm(directory, { recursive: true });
});

it("usage ledger: a burst of rows is written completely and in order", async () => {
  const directory = await mkdtemp(join(tmpdir(), "heddle-ledger-"));
  const ledger = new UsageLedger(directory, createLogger({ service: "test", level: "silent" }));
  for (let i = 0; i < 5_000; i++) {
    ledger.record({ ...row, requestId: `r${i}` });
    if (i % 300 === 0) await delay(1);
  }
  await ledger.onApplicationShutdown();
  const [file] = await readdir(directory);
  const lines = (await readFile(join(directory, file as string), "utf8")).trimEnd().split("\n");
  expect(lines.map((line) => (JSON.parse(line) as UsageRow).requestId)).toEqual(
    Array.from({ length: 5_000 }, (_, i) => `r${i}`),
  );
  await rm(directory, { recursive: true });
});
