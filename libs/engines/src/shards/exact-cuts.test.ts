// holds: shard-exact

import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { readGguf } from "../gguf/gguf-reader.ts";
import { writeTinyModel } from "../gguf/tiny-model.ts";
import { type CuttableModel, cutRuleOf, cuttableModel } from "./cut-rules.ts";
import { cutShard } from "./shard-cut.ts";
import { openStageLibrary, StageModel, type StageRow } from "./stage-model.ts";
import { ARCHITECTURE_NAMES, writeRandomModel } from "./testing/random-architectures.ts";
import { writeShard } from "./testing/write-shard.ts";

// Random models, cut at every block where they may be, compared with the whole on the CPU.

const library = openStageLibrary();
const folder = mkdtempSync(join(tmpdir(), "heddle-cuts-"));
afterAll(() => rmSync(folder, { recursive: true }));

const MAX_STAGES = 16;
/** A prompt of one sequence, which is longer than the attention's window. */
const PROMPT: StageRow[] = Array.from({ length: 40 }, (_, position) => ({
  token: 5 + ((position * 37) % 300),
  position,
  sequence: 0,
  output: true,
}));
/** Then a token of each of two sequences. */
const STEP: StageRow[] = [0, 1].map((sequence) => ({
  token: 7 + sequence,
  position: 40,
  sequence,
  output: true,
}));

function openStage(
  { rule, blocks }: CuttableModel,
  path: string,
  [from, to]: readonly [number, number] = [0, blocks],
): StageModel {
  const sizes = { threads: 1, kvTokens: 256, maxSequences: 2, batchTokens: 64 };
  return StageModel.open(library, { path, rule, from, to, isLast: to === blocks, ...sizes });
}

/** The logits of the prompt, and of a step after the second sequence has got it too. */
function logitsOf(stages: readonly StageModel[]): Float32Array[] {
  const last = stages.at(-1)!;
  return [PROMPT, STEP].map((rows) => {
    let hidden: Float32Array | undefined;
    for (const stage of stages) {
      stage.decode(rows, hidden);
      if (stage !== last) hidden = stage.hidden(rows.length);
    }
    if (rows === PROMPT) for (const stage of stages) stage.copy(0, 1, 0, rows.length);
    return last.logits(rows.length);
  });
}

async function shardsOf(model: CuttableModel, path: string, bounds: readonly number[]) {
  const paths: string[] = [];
  for (const [i, from] of bounds.slice(0, -1).entries()) {
    const shard = join(folder, `shard-${i}.gguf`);
    await writeShard(shard, cutShard(model, { from, to: bounds[i + 1]! }), (start, bytes) =>
      createReadStream(path, { start, end: start + bytes - 1 }),
    );
    paths.push(shard);
  }
  return paths;
}

/** Compares the model, cut at each of the lists of bounds, with the whole. */
async function compare(path: string, cutsOf: (model: CuttableModel) => readonly number[][]) {
  const model = cuttableModel(await readGguf(path));
  const whole = openStage(model, path);
  const expected = logitsOf([whole]);
  whole.close();
  expect(Math.max(...expected[0]!)).toBeGreaterThan(0.01);
  for (const bounds of cutsOf(model)) {
    const paths = await shardsOf(model, path, bounds);
    const stages = paths.map((shard, i) => openStage(model, shard, [bounds[i]!, bounds[i + 1]!]));
    try {
      expect(logitsOf(stages), `cut at ${bounds.join(", ")}`).toEqual(expected);
    } finally {
      for (const stage of stages) stage.close();
    }
  }
}

test("cut: there is a random model of each architecture that may be cut", () => {
  const all = new RegExp(`those that may be are ${ARCHITECTURE_NAMES.join(", ")}$`);
  const none = { version: 3, alignment: 32, metadata: new Map(), tensors: [], sizeBytes: 0 };
  expect(() => cutRuleOf(none)).toThrow(all);
});

test.each(ARCHITECTURE_NAMES)(
  "cut: %s gives the logits of the whole, bit for bit",
  async (name) => {
    const path = join(folder, `${name}.gguf`);
    await writeRandomModel(path, name);
    await compare(path, ({ blocks, cuts }) => {
      const middle = cuts.length > 2 ? [[0, cuts[1]!, cuts.at(-2)!, blocks]] : [];
      return [...cuts.map((cut) => [0, cut, blocks]), ...middle];
    });
  },
);

test("cut: a model in 16 stages, the most, gives the logits of the whole", async () => {
  const path = join(folder, "tiny.gguf");
  await writeTinyModel(path, { blocks: MAX_STAGES });
  await compare(path, ({ blocks, cuts }) => [[0, ...cuts, blocks]]);
});
