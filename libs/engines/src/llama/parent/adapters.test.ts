// holds: engine-adapters

import { copyFile, mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AdapterSpec } from "@heddle/contracts/engine";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyAdapter } from "../../gguf/tiny-adapter.ts";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import type { Answer } from "../../testing/engine-session.ts";
import { mergeAdapter } from "../testing/merged-adapter.ts";
import { TestSession } from "../testing/test-session.ts";

const SEEDS = [1, 2] as const;
const PROMPT = "a loom weaves, and a loom weaves again: ".repeat(8);
/** Two of them are more than an engine keeps, and one is not. */
const LARGE = 1_200 * 2 ** 20;
const LONG = { maxTokens: 48, ignoreEnd: true, topLogprobs: 0 };

let directory: string;
let base: TestSession;
const merged = new Map<number, TestSession>();

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-adapters-"));
  base = await TestSession.open({ maxSequences: 4, contextTokens: 1024 });
  for (const seed of SEEDS) {
    const factors = await writeTinyAdapter(pathOf(seed), seed);
    const path = join(directory, `merged-${seed}.gguf`);
    await writeTinyModel(path, { change: mergeAdapter(factors) });
    merged.set(seed, await TestSession.open({ maxSequences: 1, contextTokens: 1024 }, path));
  }
});

afterAll(async () => {
  await Promise.all([base, ...merged.values()].map((session) => session.close()));
  await rm(directory, { recursive: true });
});

describe("LoRA adapters over one loaded model", () => {
  it("an adapter answers as the model with the same change in its weights", async () => {
    for (const seed of SEEDS) {
      const adapted = await base.ask({ prompt: PROMPT, ...LONG, adapter: adapterOf(seed) });
      const expected = await merged.get(seed)?.ask({ prompt: PROMPT, ...LONG });
      expect(adapted.error).toBeUndefined();
      // The merged weights were rounded to 16 bits.
      expectClose(adapted, expected as Answer);
    }
  });

  it("the model itself is the same before, between and after adapters", async () => {
    const ask = { prompt: PROMPT, ...LONG };
    const before = await base.ask(ask);
    const adapted = await base.ask({ ...ask, adapter: adapterOf(1) });
    expect((await base.ask(ask)).texts).toEqual(before.texts);
    expect(adapted.texts).not.toEqual(before.texts);
  });

  it("a scale of 0 is the model itself", async () => {
    const ask = { prompt: PROMPT, ...LONG };
    const none = await base.ask({ ...ask, adapter: { ...adapterOf(1), scale: 0 } });
    expect(none.texts).toEqual((await base.ask(ask)).texts);
  });

  it.each([
    { layout: "slots", options: {} },
    { layout: "one pool", options: { maxSequences: 6, contextTokens: 2048, kvTokens: 6144 } },
  ])("side by side each gets its own answer: $layout", async ({ options }) => {
    const session = await TestSession.open({ maxSequences: 4, contextTokens: 1024, ...options });
    try {
      const adapters = [undefined, adapterOf(1), adapterOf(2)];
      const asks = adapters.map((adapter) => ({ prompt: PROMPT, ...LONG, adapter }));
      const alone: Answer[] = [];
      for (const ask of asks) alone.push(await session.ask(ask));
      // A prefix is found again by requests of its own adapter alone.
      expect(alone.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 0, 0]);
      const beside = await Promise.all([...asks, ...asks].map((ask) => session.ask(ask)));
      for (const [i, answer] of beside.entries()) {
        expect(answer.error).toBeUndefined();
        expectClose(answer, alone[i % asks.length] as Answer);
        // A pool on a CPU keeps few idle prefixes: the second of each adapter finds the first's.
        if (i >= asks.length) expect(answer.cachedTokens).toBeGreaterThan(100);
      }
    } finally {
      await session.close();
    }
  });

  it("a file that is no adapter of this model fails its request alone", async () => {
    const path = join(directory, "other.gguf");
    await writeFile(path, "GGUF, but not quite");
    const [broken, sound] = await Promise.all([
      base.ask({ prompt: PROMPT, ...LONG, adapter: { ...adapterOf(1), path } }),
      base.ask({ prompt: PROMPT, ...LONG }),
    ]);
    expect(broken.error).toMatchObject({
      code: "answer_failed",
      message: expect.stringContaining("the adapter cannot be used with this model"),
    });
    expect(sound.error).toBeUndefined();
    expect((await base.ask({ prompt: "x", adapter: adapterOf(1) })).error).toBeUndefined();
  });
});

describe("more LoRA adapters than an engine keeps", () => {
  const ask = { prompt: PROMPT, ...LONG, maxTokens: 4 };
  const copyOf = async (name: string, bytes?: number): Promise<AdapterSpec> => {
    const path = join(directory, `${name}.gguf`);
    await copyFile(pathOf(1), path);
    // The rest is a hole that the library does not read.
    if (bytes !== undefined) await truncate(path, bytes);
    return { ...adapterOf(1), path };
  };

  it("the longest unused are freed, and are loaded again when they are wanted", async () => {
    const first = await base.ask({ ...ask, adapter: await copyOf("first") });
    for (let i = 0; i < 130; i++) {
      const { error } = await base.ask({ ...ask, prompt: "x", adapter: await copyOf(`copy-${i}`) });
      expect(error).toBeUndefined();
    }
    const again = await base.ask({ ...ask, adapter: await copyOf("first") });
    expect([again.error, again.cachedTokens, again.texts]).toEqual([undefined, 0, first.texts]);
    const third = await base.ask({ ...ask, adapter: await copyOf("first") });
    expect([third.error, third.texts]).toEqual([undefined, first.texts]);
    expect(third.cachedTokens).toBeGreaterThan(100);
  });

  it("files of more than 2 GiB together are not kept, and none in use is freed", async () => {
    const [one, two] = [await copyOf("one", LARGE), await copyOf("two", LARGE)];
    const alone = await base.ask({ ...ask, adapter: one });
    const [long, refused] = await Promise.all([
      base.ask({ ...ask, maxTokens: 256, adapter: one }),
      base.ask({ ...ask, adapter: two }),
    ]);
    expect([long.error, long.texts[0]?.startsWith(alone.texts[0] ?? "-")]).toEqual([
      undefined,
      true,
    ]);
    expect(refused.error).toMatchObject({ code: "overloaded" });
    expect((await base.ask({ ...ask, adapter: two })).texts).toEqual(alone.texts);
    expect((await base.ask({ ...ask, adapter: one })).texts).toEqual(alone.texts);
    const huge = await copyOf("huge", 2 * LARGE);
    const { error } = await base.ask({ ...ask, adapter: huge });
    expect(error).toMatchObject({ message: expect.stringContaining("larger than 2 GiB") });
  });
});

function pathOf(seed: number): string {
  return join(directory, `adapter-${seed}.gguf`);
}

function adapterOf(seed: number): AdapterSpec {
  const file = `adapter-${seed}.gguf`;
  const weights = { key: `adapter-${seed}`, file, sources: [`file://${pathOf(seed)}`] };
  return { weights, scale: 1, path: pathOf(seed) };
}

/** The same tokens from the first on, as long as no near tie is decided otherwise. */
function expectClose({ logprobs }: Answer, expected: Answer): void {
  const [ours, theirs] = [logprobs[0] ?? [], expected.logprobs[0] ?? []];
  let equal = 0;
  while (equal < ours.length && ours[equal]?.token === theirs[equal]?.token) equal++;
  expect(equal).toBeGreaterThanOrEqual(8);
  for (let at = 0; at < equal; at++) {
    expect(Math.abs((ours[at]?.logprob ?? 0) - (theirs[at]?.logprob ?? 9))).toBeLessThan(0.05);
  }
}
