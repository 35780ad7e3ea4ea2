import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readJobSpec } from "./job-spec.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-spec-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The config of a spec's file as the cluster is sent it. */
async function configOf(config: unknown): Promise<unknown> {
  const file = join(folder, "job.yaml");
  writeFileSync(file, JSON.stringify({ name: "j", config }));
  const command = new Command().argument("[file]").parse([file], { from: "user" });
  return ((await readJobSpec(command)) as { readonly config?: unknown }).config;
}

test("paths of data and of a tokenizer are relative to the spec's file", async () => {
  const path = "tokens/tokenizer.json";
  expect(
    await configOf({ data: ["a", "/b"], tokenizer: { type: "huggingface", path }, seed: 1 }),
  ).toEqual({
    data: [join(folder, "a"), "/b"],
    tokenizer: { type: "huggingface", path: join(folder, path) },
    seed: 1,
  });
  expect(await configOf({ data: "a", tokenizer: "bpe" })).toEqual({
    ...{ data: join(folder, "a"), tokenizer: "bpe" },
  });
});

test("a config without paths is sent as it is, whatever it is", async () => {
  for (const config of [{ seed: 1 }, null, "text", { tokenizer: { path: 3 } }, { data: 3 }]) {
    expect(await configOf(config)).toEqual(config);
  }
});
