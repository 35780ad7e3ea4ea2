// holds: usage-ledger

import { appendFile, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createLogger } from "@heddle/observability/logger";
import { expect, it } from "vitest";
import { UsageBook } from "./usage-book.ts";
import { UsageFiles } from "./usage-files.ts";
import { UsageLedger } from "./usage-ledger.ts";
import { dayOf, type UsageRow } from "./usage-row.ts";

const DAY = dayOf({ atMs: Date.now() });

const row: UsageRow = {
  atMs: Date.now(),
  requestId: "r",
  key: "k",
  project: "p",
  model: "m",
  node: undefined,
  promptTokens: 1,
  cachedTokens: 0,
  completionTokens: 2,
  cost: 7,
  durationMs: 3,
  errorCode: undefined,
  endUser: undefined,
};

function open(directory: string) {
  const book = new UsageBook();
  const logger = createLogger({ service: "test", level: "silent" });
  return { book, ledger: new UsageLedger(new UsageFiles(directory), book, logger) };
}

const rowsOf = (directory: string) => join(directory, "usage");

/** A ledger that has read its directory. */
async function reopened(directory: string) {
  const opened = open(directory);
  await opened.ledger.onModuleInit();
  return opened;
}

it("usage ledger: a restart has the sums, and those of rows behind them", async () => {
  const directory = await mkdtemp(join(tmpdir(), "heddle-ledger-"));
  const first = await reopened(directory);
  for (let i = 0; i < 3; i++) first.ledger.record({ ...row, model: `m${i % 2}` });
  await first.ledger.onApplicationShutdown();
  // What a master that crashed had written after its sums, with a cut row.
  const [file] = await readdir(rowsOf(directory));
  const later = JSON.stringify({
    ...row,
    owner: "first",
    isOwnModel: true,
    errorCode: "cancelled",
  });
  await appendFile(join(rowsOf(directory), file as string), `${later}\n{"atMs":1`);
  const second = await reopened(directory);
  expect(second.book.costOf({ kind: "key", name: "k" }, "total")).toBe(21);
  expect(second.book.costOf({ kind: "key", name: "first" }, "total")).toBe(7);
  expect(second.book.costOf({ kind: "project", name: "p" }, "total")).toBe(28);
  expect(second.book.costOf({ kind: "model", name: "m0" }, "2020-01")).toBe(0);
  expect(second.book.costOf({ kind: "model", name: "m" }, "total")).toBe(0);
  expect(second.book.costOf({ kind: "model", name: "m", project: "p" }, "total")).toBe(7);
  await second.ledger.onApplicationShutdown();
  const third = await reopened(directory);
  const sums = [...third.book.between(DAY, DAY)];
  expect(sums.map(({ model, calls, failed }) => [model, calls, failed]).sort()).toEqual([
    ["m", 1, 1],
    ["m0", 2, 0],
    ["m1", 1, 0],
  ]);
  await third.ledger.onApplicationShutdown();
  await rm(directory, { recursive: true });
});

it("usage ledger: damaged sums are made of the rows, days beyond 400 are removed", async () => {
  const directory = await mkdtemp(join(tmpdir(), "heddle-ledger-"));
  const first = await reopened(directory);
  first.ledger.record({ ...row, atMs: row.atMs - 400 * 86_400_000 });
  first.ledger.record(row);
  await first.ledger.onApplicationShutdown();
  for (const file of await readdir(join(directory, "usage-sums"))) {
    await writeFile(join(directory, "usage-sums", file), "{");
  }
  const second = await reopened(directory);
  expect(second.book.days).toEqual([DAY]);
  expect(second.book.costOf({ kind: "key", name: "k" }, "total")).toBe(7);
  await second.ledger.onApplicationShutdown();
  expect(await readdir(rowsOf(directory))).toHaveLength(1);
  await rm(directory, { recursive: true });
});

it("usage ledger: rows reach the disk while it is open, also after an idle time", async () => {
  const directory = await mkdtemp(join(tmpdir(), "heddle-ledger-"));
  const { ledger } = open(directory);
  const written = async () => {
    const files = await readdir(rowsOf(directory)).catch(() => []);
    const texts = await Promise.all(
      files.map((file) => readFile(join(rowsOf(directory), file), "utf8")),
    );
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
  const { ledger } = open(directory);
  for (let i = 0; i < 5_000; i++) {
    ledger.record({ ...row, requestId: `r${i}` });
    if (i % 300 === 0) await delay(1);
  }
  await ledger.onApplicationShutdown();
  const [file] = await readdir(rowsOf(directory));
  const lines = (await readFile(join(rowsOf(directory), file as string), "utf8"))
    .trimEnd()
    .split("\n");
  expect(lines.map((line) => (JSON.parse(line) as UsageRow).requestId)).toEqual(
    Array.from({ length: 5_000 }, (_, i) => `r${i}`),
  );
  await rm(directory, { recursive: true });
});
