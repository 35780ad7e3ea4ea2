// holds: engine-restart-wait, engine-load-retries

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError, type ErrorCode } from "@heddle/base/errors";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import { expect, test, vi } from "vitest";
import { scriptedPorts } from "../../test/scripted-ports.ts";
import type { EnginePorts } from "./engine-ports.ts";
import { ReplicaSet } from "./replica-set.ts";

const wait = { timeout: 100_000 };
const silent = { info() {}, warn() {}, error() {} };
const spec: DeploymentSpec = {
  key: "m",
  engine: "llama",
  weights: { key: "w", file: "w.gguf", sources: ["file:///models/w.gguf"] },
  options: {},
};

test("log: a repeated failure is logged once, a different one again", async () => {
  let failure = new AppError("model_failed", "it has the wrong sha256");
  let pulls = 0;
  const ports: EnginePorts = {
    ...scriptedPorts,
    pullWeights: () => {
      pulls += 1;
      return Promise.reject(failure);
    },
  };
  const logged: unknown[] = [];
  const error = (fields: Readonly<Record<string, unknown>>) => void logged.push(fields["error"]);
  const replicas = new ReplicaSet(ports, {}, { info() {}, warn() {}, error }, () => {});
  const tryIt = async () => {
    const before = pulls;
    await replicas.load(spec);
    await vi.waitFor(() => {
      expect(pulls).toBe(before + 1);
      expect(replicas.statuses()[0]?.phase).toBe("failed");
    }, wait);
  };
  for (let i = 0; i < 3; i++) await tryIt();
  expect(logged).toEqual(["it has the wrong sha256"]);
  expect(replicas.statuses()[0]).toMatchObject({ failureCode: "model_failed" });
  failure = new AppError("unavailable", "no source is reached");
  for (let i = 0; i < 2; i++) await tryIt();
  expect(logged).toEqual(["it has the wrong sha256", "no source is reached"]);
  expect(replicas.statuses()[0]).toMatchObject({ failureCode: "unavailable" });
  await replicas.load({ ...spec, options: { threads: 1 } });
  await vi.waitFor(() => expect(logged).toHaveLength(3), wait);
  await replicas.close();
});

test("refused file: loads again after a change of file, options or failure", async () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-refused-"));
  const path = join(folder, "w.gguf");
  writeFileSync(path, "no template");
  let code: ErrorCode = "invalid_value";
  let starts = 0;
  const ports: EnginePorts = {
    pullWeights: () => Promise.resolve(path),
    startEngine: () => {
      starts += 1;
      return Promise.reject(new AppError(code, "its template is no jinja"));
    },
  };
  const replicas = new ReplicaSet(ports, {}, silent, () => {});
  const loadedTimes = async (given: DeploymentSpec, times: number) => {
    await replicas.load(given);
    await vi.waitFor(() => {
      expect(replicas.statuses()[0]?.phase).toBe("failed");
      expect(starts).toBe(times);
    }, wait);
  };
  await loadedTimes(spec, 1);
  await loadedTimes(spec, 1);
  await loadedTimes({ ...spec, options: { chatTemplate: "{{" } }, 2);
  await loadedTimes(spec, 3);
  writeFileSync(path, "another template");
  await loadedTimes(spec, 4);
  await loadedTimes(spec, 4);
  rmSync(path);
  // A transient cause is retried: memory is freed, a crash may not repeat.
  code = "engine_failed";
  await loadedTimes(spec, 5);
  await loadedTimes(spec, 6);
  // A device may return, and is not the file's fault.
  code = "unavailable";
  for (let times = 7; times < 20; times++) await loadedTimes(spec, times);
  await replicas.close();
  rmSync(folder, { recursive: true });
});

test("five failed loads: no retry until the file changes or a user asks", async () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-given-up-"));
  const path = join(folder, "w.gguf");
  writeFileSync(path, "absurd");
  let starts = 0;
  let isMended = false;
  const ports: EnginePorts = {
    pullWeights: () => Promise.resolve(path),
    startEngine: (start) => {
      starts += 1;
      if (isMended) return scriptedPorts.startEngine(start);
      const message = "the engine process ended by signal SIGABRT; it wrote: GGML_ASSERT(n_layer)";
      return Promise.reject(new AppError("engine_failed", message));
    },
  };
  const logged: unknown[] = [];
  const error = (fields: Readonly<Record<string, unknown>>) => void logged.push(fields["error"]);
  const replicas = new ReplicaSet(ports, {}, { info() {}, warn() {}, error }, () => {});
  const status = () => replicas.statuses()[0];
  const fails = async (times: number, ask = () => replicas.load(spec)) => {
    await ask();
    await vi.waitFor(() => {
      expect(status()?.phase).toBe("failed");
      expect(starts).toBe(times);
    }, wait);
  };
  for (let times = 1; times <= 4; times++) await fails(times);
  expect(status()).toMatchObject({ failureCode: "engine_failed" });
  await fails(5);
  const advice =
    /^the engine .* SIGABRT; it wrote: GGML_ASSERT.* failed 5 times in a row and is not tried/;
  expect(status()).toMatchObject({
    failureCode: "model_failed",
    message: expect.stringMatching(advice),
  });
  expect(logged).toEqual([expect.not.stringMatching(advice), expect.stringMatching(advice)]);
  await fails(5);
  writeFileSync(path, "as absurd");
  for (let times = 6; times <= 10; times++) await fails(times);
  await fails(10);
  await fails(11, () => replicas.retry(spec.weights));
  for (let times = 12; times <= 15; times++) await fails(times);
  await fails(15, () => replicas.retry({ ...spec.weights, sources: ["file:///other.gguf"] }));
  isMended = true;
  await replicas.retry(spec.weights);
  await vi.waitFor(() => expect(status()?.phase).toBe("ready"), wait);
  await replicas.close();
  rmSync(folder, { recursive: true });
});

test("engine restart: the replica reports loading, and accepts calls afterwards", async () => {
  let engine: Parameters<EnginePorts["startEngine"]>[0] | undefined;
  const ports: EnginePorts = {
    ...scriptedPorts,
    startEngine: (start) => {
      engine = start;
      return scriptedPorts.startEngine(start);
    },
  };
  const replicas = new ReplicaSet(ports, {}, silent, () => {});
  const phase = () => replicas.statuses()[0]?.phase;
  await replicas.load(spec);
  await vi.waitFor(() => expect(phase()).toBe("ready"), wait);
  engine?.onDown(new AppError("engine_failed", "it was killed"));
  expect(replicas.statuses()[0]).toMatchObject({
    phase: "loading",
    message: "restarting after a crash: it was killed",
  });
  engine?.onRecovered();
  expect(replicas.statuses()[0]).toMatchObject({ phase: "ready", message: "" });
  await replicas.close();
});
