// holds: engine-bad-file

import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AppError } from "@heddle/base/errors";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { llamaPorts } from "./llama-ports.ts";

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-ports-"));
});
afterAll(() => rm(folder, { recursive: true }));

const weights = { key: "broken", file: "broken.gguf", sources: ["file:///broken.gguf"] };

async function failureOf(modelPath: string): Promise<AppError> {
  const ports = llamaPorts({ cacheDirectory: join(folder, "cache"), allowedHosts: [] });
  const started = ports.startEngine({
    spec: { key: "broken-1", engine: "llama", weights, options: {} },
    modelPath,
    sink: () => {},
    onExit: () => {},
    onDown: () => {},
    onRecovered: () => {},
    signal: AbortSignal.timeout(30_000),
  });
  return await started.then(
    () => expect.fail("a damaged file was loaded"),
    (error: AppError) => error,
  );
}

describe("a damaged model file", () => {
  it("that was pulled: the advice is to delete it, so that it is pulled again", async () => {
    const path = join(folder, "cache", weights.key, weights.file);
    await mkdir(join(path, ".."), { recursive: true });
    await writeFile(path, "GGUF and then nothing");
    const { message } = await failureOf(path);
    expect(message).toMatch(
      /^broken\.gguf is not a usable GGUF file: .*Delete it from the worker's/,
    );
    expect(message).not.toContain(folder);
  });

  it("that a user gave: the advice is never to delete it", async () => {
    const path = join(folder, "mine.gguf");
    await writeFile(path, "GGUF and then nothing");
    const { message } = await failureOf(path);
    expect(message).toMatch(/^mine\.gguf is not a usable GGUF file: .*Give another file/);
    expect(message).not.toMatch(/delete|pulled again/i);
    expect(message).not.toContain(folder);
    expect(await readFile(path, "utf8")).toBe("GGUF and then nothing");
  });
});

it("chat template: invalid jinja is refused before the load", async () => {
  const path = join(folder, "template.gguf");
  await writeTinyModel(path);
  const bytes = await readFile(path);
  const key = "tokenizer.chat_template";
  // A key is followed by its value's type in four bytes, and a text's length in eight.
  const value = bytes.indexOf(key) + key.length + 12;
  bytes.write("{% xx ", value);
  await writeFile(path, bytes);
  const failure = await failureOf(path);
  expect(failure).toMatchObject({ code: "invalid_value", param: "chatTemplate" });
  expect(failure.message).toContain("not valid Jinja: Unknown statement type: xx");
});
