// holds: shard-tap

import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import koffi from "koffi";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { readGguf } from "../gguf/gguf-reader.ts";
import { setDevices } from "../llama/native/device-split.ts";
import type { Pointer } from "../llama/native/layouts.ts";
import { type CuttableModel, cuttableModel } from "./cut-rules.ts";
import { callbackTap, layerInputTap } from "./residual-tap.ts";
import { cutShard } from "./shard-cut.ts";
import { chooseTap, type StageLibrary } from "./stage-context.ts";
import { openStageLibrary } from "./stage-model.ts";
import { ARCHITECTURE_NAMES, writeRandomModel } from "./testing/random-architectures.ts";
import { writeShard } from "./testing/write-shard.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-taps-"));
let library: StageLibrary;
beforeAll(() => {
  library = openStageLibrary();
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The first shard of a random model. */
async function firstShard(name: string): Promise<Pick<CuttableModel, "rule"> & { model: Pointer }> {
  const path = join(folder, `${name}.gguf`);
  await writeRandomModel(path, name);
  const whole = cuttableModel(await readGguf(path));
  const shard = join(folder, `${name}-shard.gguf`);
  const cut = cutShard(whole, { from: 0, to: whole.cuts[0]! });
  await writeShard(shard, cut, (start, bytes) =>
    createReadStream(path, { start, end: start + bytes - 1 }),
  );
  const { llama } = library;
  const params = llama.model_default_params();
  setDevices(params, [], undefined);
  const model = llama.model_load_from_file(shard, params);
  onTestFinished(() => llama.model_free(model));
  return { rule: whole.rule, model };
}

test.each(ARCHITECTURE_NAMES)("tap: %s is read where the library has it", async (name) => {
  const { model, rule } = await firstShard(name);
  const expected = rule.hasTap ? layerInputTap : callbackTap;
  expect(chooseTap(library, model, rule)).toBe(expected);
});

test("tap: a library without it, or with other rows, is read by the callback", async () => {
  const { model, rule } = await firstShard("llama");
  const { llama, taps } = library;
  const none = { ...taps, layerInput: undefined };
  expect(chooseTap({ llama, taps: none }, model, rule)).toBe(callbackTap);
  const memory: unknown = koffi.alloc("uint8_t", 4_096);
  onTestFinished(() => koffi.free(memory));
  const layerInput = { ...taps.layerInput!, of: () => koffi.address(memory) };
  expect(chooseTap({ llama, taps: { ...taps, layerInput } }, model, rule)).toBe(callbackTap);
});

test("tap: a shard whose rows nothing gives is refused at its start", async () => {
  const { model, rule } = await firstShard("qwen2");
  const taps = { ...library.taps, nameOf: () => "other" };
  const choose = () => chooseTap({ llama: library.llama, taps }, model, rule);
  expect(choose).toThrow("the library does not give what leaves the shard's blocks");
});
