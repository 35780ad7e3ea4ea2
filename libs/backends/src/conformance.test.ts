// holds: train-gradients

import type { Backend } from "@heddle/training/backend";
import { referenceBackend } from "@heddle/training/reference/reference-backend";
import { describe, expect, it, test } from "vitest";
import { conformanceCases, conformanceError } from "./conformance.ts";
import { onnxBackend } from "./onnx-backend.ts";
import { tfjsBackend } from "./tfjs-backend.ts";

const BACKENDS: readonly Backend[] = [
  onnxBackend({ device: "cpu", threads: 1 }),
  referenceBackend,
  await tfjsBackend({ device: "cpu" }),
];
const SEED = 5;

describe.each(BACKENDS)("backend $name: agrees with the oracle to 1e-5", (backend) => {
  it.each(conformanceCases())("$name", async (one) => {
    expect(await conformanceError(backend, one, SEED)).toBeLessThan(1e-5);
  });
});

const computing = BACKENDS.filter(({ name }) => name !== "reference");

test.each(computing)(
  "$name: a missing, misshapen or mistyped tensor is refused by name",
  async (backend) => {
    const one = conformanceCases().find(({ name }) => name.startsWith("a policy"));
    const program = await backend.compile(one!.executable);
    await expect(program.run({})).rejects.toThrow(/the input actor.0.weight .* got nothing/);
    const short = { "actor.0.weight": new Float32Array(3) };
    await expect(program.run(short)).rejects.toThrow(/a Float32Array of 3/);
    const indices = { "actor.0.weight": new Int32Array(64) };
    await expect(program.run(indices)).rejects.toThrow(/an? Int32Array of 64/);
    await program.close();
  },
);

test("device: an absent one is an error, not another device", async () => {
  const backend = onnxBackend({ device: "cuda:0", threads: 1 });
  const [one] = conformanceCases();
  await expect(backend.compile(one!.executable)).rejects.toMatchObject({ code: "unavailable" });
});

test("tfjs: on a GPU names the missing package, and how to do without it", async () => {
  const loading = tfjsBackend({ device: "cuda:0" });
  await expect(loading).rejects.toMatchObject({ code: "unavailable" });
  await expect(loading).rejects.toThrow(/tfjs-node-gpu.*not installed: npm install.*"onnx"/);
});

test("tfjs: names the package that computes", async () => {
  const { name, device } = await tfjsBackend({ device: "cpu" });
  expect([name, device]).toEqual([
    "tfjs",
    expect.stringMatching(/^cpu \(@tensorflow\/tfjs-.* 4\./),
  ]);
});
