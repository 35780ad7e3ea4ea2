// holds: shard-moves

import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { largestDifference } from "@heddle/base/testing/largest-difference";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { readGguf } from "../gguf/gguf-reader.ts";
import { cuttableModel } from "./cut-rules.ts";
import { cutShard } from "./shard-cut.ts";
import { openStageLibrary, StageModel, type StageRow } from "./stage-model.ts";
import { ARCHITECTURE_NAMES, writeRandomModel } from "./testing/random-architectures.ts";
import { writeShard } from "./testing/write-shard.ts";

const library = openStageLibrary();
const folder = mkdtempSync(join(tmpdir(), "heddle-moves-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Where the cells of a cache lie rounds by some 1e-4. */
const NEAR = 2e-3;
/** The cells of sequences that run, and of a prefix. */
const [FIRST, SECOND, PREFIX] = [0, 1, 200];

/** Tokens of a sequence at these positions. */
function rowsOf(sequence: number, begin: number, end: number): StageRow[] {
  return Array.from({ length: end - begin }, (_, i) => ({
    token: 5 + (((begin + i) * 37 + sequence) % 300),
    position: begin + i,
    sequence,
    output: false,
  }));
}

async function firstStage(name: string): Promise<() => StageModel> {
  const whole = join(folder, `${name}.gguf`);
  await writeRandomModel(whole, name);
  const { rule, cuts, ...model } = cuttableModel(await readGguf(whole));
  const range = { from: 0, to: cuts.at(-1)! };
  const path = join(folder, `${name}-first.gguf`);
  await writeShard(path, cutShard({ rule, cuts, ...model }, range), (start, bytes) =>
    createReadStream(whole, { start, end: start + bytes - 1 }),
  );
  const sizes = { threads: 1, kvTokens: 256, maxSequences: 2, batchTokens: 64 };
  return () => {
    const stage = StageModel.open(library, { path, rule, ...range, isLast: false, ...sizes });
    onTestFinished(() => stage.close());
    return stage;
  };
}

/** A prompt, a prefix of it that outlives it, and another sequence that continues the prefix. */
function fill(stage: StageModel): void {
  stage.decode(rowsOf(FIRST, 0, 40));
  stage.copy(FIRST, PREFIX, 0, 30);
  stage.copy(PREFIX, SECOND, 0, 30);
  stage.decode(rowsOf(SECOND, 30, 38));
}

function move(from: StageModel, to: StageModel): number {
  const count = from.mover.begin() ?? -1;
  for (let at = 0; at < count; at++) expect(to.mover.take(from.mover.save(at)!)).toBe(true);
  return count;
}

const hiddenOf = (stage: StageModel, rows: readonly StageRow[]) => {
  stage.decode(rows);
  return [...stage.hidden(rows.length)];
};

/** Models whose attention has a window: the library does not save all. */
const WINDOWED = ["gemma3", "cohere2"];
const MOVED = ARCHITECTURE_NAMES.filter((name) => !WINDOWED.includes(name));

test.each(WINDOWED)("cache: %s is not saved, since its attention has a window", async (name) => {
  const stage = (await firstStage(name))();
  fill(stage);
  expect(stage.mover.begin()).toBeUndefined();
});

test.each(MOVED)("cache: a sequence of %s continues in another stage", async (name) => {
  const open = await firstStage(name);
  const [kept, old, next] = [open(), open(), open()];
  for (const stage of [kept, old]) fill(stage);
  expect(move(old, next)).toBe(3);
  const same = (rows: readonly StageRow[]) =>
    expect(largestDifference([hiddenOf(next, rows)], [hiddenOf(kept, rows)])).toBeLessThan(NEAR);
  same([...rowsOf(FIRST, 40, 41), ...rowsOf(SECOND, 38, 39)]);
  // An earlier position, and the prefix by itself.
  for (const stage of [kept, next]) stage.remove(SECOND, 34, -1);
  same(rowsOf(SECOND, 34, 36));
  for (const stage of [kept, next]) {
    for (const sequence of [FIRST, SECOND]) stage.remove(sequence, 0, -1);
    stage.copy(PREFIX, FIRST, 0, 25);
  }
  same(rowsOf(FIRST, 25, 27));
  // It moves on as if it had computed all.
  const last = open();
  expect(move(next, last)).toBe(2);
  const rows = rowsOf(FIRST, 27, 28);
  const difference = largestDifference([hiddenOf(last, rows)], [hiddenOf(kept, rows)]);
  expect(difference).toBeLessThan(NEAR);
});

test("cache: a stage does not take what it would not save itself", async () => {
  const open = await firstStage("llama");
  const [old, next] = [open(), open()];
  fill(old);
  expect(old.mover.begin()).toBe(3);
  const saved = old.mover.save(0)!;
  expect(next.mover.take(saved.subarray(0, -8))).toBe(false);
  next.clear();
  expect(next.mover.take(saved)).toBe(true);
});
