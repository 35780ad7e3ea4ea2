// holds: train-corrupt, train-other-tokens

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { EXIT_UNUSABLE } from "@heddle/contracts/trainer/exit-codes";
import { type ServerProcess } from "@heddle/parameters/testing/server-processes";
import { TEXT, TINY_MODEL } from "@heddle/training/testing/tiny-language-model";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TrainingCluster } from "../../test/training-cluster.ts";
import { textTokenizer } from "./text-tokenizer.ts";

// Jobs that learn their tokens from their data: real trainers and a real parameter server.

// The text has pairs for fewer tokens than these.
const TOKENIZER = { type: "bpe", vocab_size: 512 } as const;
// The same text with two letters exchanged: as many tokens, some of them different.
const OTHER = TEXT.replace(/[ae]/g, (letter) => (letter === "a" ? "e" : "a"));

let cluster: TrainingCluster;
let servers: readonly ServerProcess[] = [];
let text = "";

beforeAll(async () => {
  cluster = new TrainingCluster();
  servers = [await cluster.startServer("s0")];
  text = join(cluster.folder, "text.txt");
});
afterAll(() => cluster.close());

const digestOf = (data: string) => textTokenizer(TOKENIZER, Buffer.from(data)).digest ?? "";

const newJob = () => {
  writeFileSync(text, TEXT);
  const local = { local_steps: 10, warm_start_steps: 0, total_steps: 100_000 };
  const job = { ...TINY_MODEL, ...local, data: text, tokenizer: TOKENIZER };
  return cluster.job("weave", job, servers, { tasks: 2, nodes: ["a", "b"] });
};

test("resume: continues with the same tokens; data with other tokens is refused", async () => {
  const job = newJob();
  const first = job.startAll();
  const [leader] = first;
  await leader?.reachesRound(2);
  const resumeFrom = (await leader?.checkpoint()) ?? "";
  for (const trainer of first) await trainer.kill();
  expect(leader?.output).toContain(`320 bpe tokens (${digestOf(TEXT).slice(0, 16)})`);

  writeFileSync(text, OTHER);
  const changed = job.start({ attempt: 2, resumeFrom });
  // Not as a damaged checkpoint: it is intact.
  expect(await changed.ended()).toBe(EXIT_UNUSABLE);
  const [had, has] = [TEXT, OTHER].map(
    (data) => `token_embd.${digestOf(data).slice(0, 16)}.weight`,
  );
  expect(changed.output).toContain("the training data has changed since the job began");
  expect(changed.output).toMatch(/\(its SHA-256 is [0-9a-f]{64} now\)/);
  expect(changed.output).toContain(`${resumeFrom} cannot be used`);
  expect(changed.output).toContain(
    `it has ${had} [320, 16] where this attempt has ${has} [320, 16]`,
  );
  expect(changed.output).toContain("put back what was there, or submit the job again");

  writeFileSync(text, TEXT);
  // A few rounds more are enough.
  const round = Number(/-r(\d+)-/.exec(resumeFrom)?.[1]);
  const config = { ...(leader?.orders.config as object), total_steps: (round + 3) * 10 };
  const third = job.startAll({ attempt: 3, resumeFrom, config });
  await Promise.all(third.map((trainer) => trainer.succeeded()));
  expect(third[0]?.output).toContain(`resumed from checkpoint ${resumeFrom}`);
  const lineage = JSON.parse(readFileSync(third[0]?.artifact("lineage.json") ?? "", "utf8"));
  const tokenizer = { type: "bpe", tokens: 320, sha256: digestOf(TEXT) };
  expect(lineage).toMatchObject({ tokenizer, config: { tokenizer: TOKENIZER } });
  const path = third[0]?.artifact("tokenizer.json") ?? "";
  const left = textTokenizer({ type: "huggingface", path }, new Uint8Array());
  expect(left.digest).toBe(digestOf(TEXT));
});

test("join: a rank with other tokens is refused, and the error names the job's", async () => {
  const job = newJob();
  const leader = job.start();
  const data = join(cluster.folder, "other.txt");
  writeFileSync(data, OTHER);
  const config = { ...(leader.orders.config as object), data };
  const foreign = job.start({ rank: 1, config });
  expect(await foreign.ended()).toBe(65);
  expect(foreign.output).toContain(`token_embd.${digestOf(TEXT).slice(0, 16)}.weight [320,`);
  await leader.kill();
});
