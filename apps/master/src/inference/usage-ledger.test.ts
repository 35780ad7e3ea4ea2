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
  requestId: "req_1",
  key: "abcdefgh",
  model: "m",
  node: "n",
  promptTokens: 3,
  cachedTokens: 0,
  completionTokens: 5,
  errorCode: undefined,
  endUser: undefined,
  durationMs: 1,
};

it("writes rows while it runs, also those that come after a flush found nothing", async () => {
  const directory = await mkdtemp(join(tmpdir(), "heddle-usage-"));
  const ledger = new UsageLedger(directory, createLogger({ service: "test", level: "silent" }));
  try {
    await delay(700);
    ledger.record(row);
    await expect
      .poll(() => readdir(directory), { timeout: 10_000 })
      .toEqual(["usage-2026-01-02.jsonl"]);
    const path = join(directory, "usage-2026-01-02.jsonl");
    await expect
      .poll(async () => JSON.parse((await readFile(path, "utf8")) || "{}"), { timeout: 10_000 })
      .toMatchObject({ requestId: "req_1", completionTokens: 5 });
  } finally {
    await ledger.close();
    await rm(directory, { recursive: true });
  }
});
