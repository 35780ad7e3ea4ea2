import { AppError } from "@heddle/base/errors";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import { expect, test, vi } from "vitest";
import { scriptedPorts } from "../test/scripted-ports.ts";
import type { EnginePorts } from "./engine-ports.ts";
import { ReplicaSet } from "./replica-set.ts";

const spec: DeploymentSpec = {
  key: "m",
  engine: "llama",
  weights: { key: "w", file: "w.gguf", sources: ["file:///models/w.gguf"] },
  options: {},
};

test("the same failure is logged once however often it is tried again, and another anew", async () => {
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
    });
  };
  for (let i = 0; i < 3; i++) await tryIt();
  expect(logged).toEqual(["it has the wrong sha256"]);
  expect(replicas.statuses()[0]).toMatchObject({ failureCode: "model_failed" });
  failure = new AppError("unavailable", "no source is reached");
  for (let i = 0; i < 2; i++) await tryIt();
  expect(logged).toEqual(["it has the wrong sha256", "no source is reached"]);
  expect(replicas.statuses()[0]).toMatchObject({ failureCode: "unavailable" });
  await replicas.load({ ...spec, options: { threads: 1 } });
  await vi.waitFor(() => expect(logged).toHaveLength(3));
  await replicas.close();
});
