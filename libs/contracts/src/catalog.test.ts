// holds: engine-catalog

import { describe, expect, it } from "vitest";
import { CATALOG_PROFILES, type CatalogProfile, catalogOf } from "./catalog.ts";

const IDS = ["FamilyA-1-2B", "FamilyA-1-4B", "FamilyA-1-8B", "FamilyB-1-2B", "FamilyB-1-8B"];

describe.each(CATALOG_PROFILES)("the %s profile", (profile) => {
  const { models, deployments } = catalogOf(profile);

  it("has the five ids with the platform's promises", () => {
    expect(models.map(({ id }) => id)).toEqual(IDS);
    for (const model of models) {
      expect(model.contextWindow).toBe(131_072);
      expect(model.capabilities).toEqual(["chat"]);
      expect(model.availability).toBe("Free (Beta)");
      expect(model.family).toBe(model.id.startsWith("FamilyA") ? "A" : "B");
      expect(model.intendedUse).not.toBe("");
    }
  });

  it("gives every model a deployment, every deployment a model, and each key once", () => {
    const keys = deployments.map(({ spec }) => spec.key);
    expect(new Set(keys).size).toBe(keys.length);
    expect(new Set(models.map(({ deployment }) => deployment))).toEqual(new Set(keys));
  });

  it("names a licence, and a digest for everything that is downloaded", () => {
    for (const { weights } of deployments.map(({ spec }) => spec)) {
      expect(weights.license).toBe("Apache-2.0");
      const builtin = weights.sources.every((source) => source.startsWith("builtin://"));
      if (!builtin) expect(weights.sha256).toMatch(/^[0-9a-f]{64}$/);
      // A branch may move under a digest; a commit cannot.
      for (const source of weights.sources) {
        if (source.startsWith("hf://")) expect(source).toMatch(/@[0-9a-f]{40}$/);
      }
    }
  });
});

describe("catalog backing", () => {
  it("gpu: a separate model per id, with the whole context", () => {
    const { models, deployments } = catalogOf("gpu");
    expect(deployments.length).toBe(5);
    expect(models.every(({ standIn }) => !standIn)).toBe(true);
    for (const { spec } of deployments) expect(spec.options.contextTokens).toBe(131_072);
  });

  it("gpu: needs a GPU for weights and one whole context; CPU profiles need none", () => {
    const memory = (profile: CatalogProfile) =>
      catalogOf(profile).deployments.map(({ gpuMemoryGb }) => gpuMemoryGb);
    // The 3B code model has no grouped heads: its keys and values alone are 43 GB.
    expect(memory("gpu")).toEqual([14, 24, 28, 47, 26]);
    expect([...memory("demo"), ...memory("tiny")]).toEqual([undefined, undefined]);
  });

  it("small: one deployment, pulled from the hub, of less than 1 GB", () => {
    const { models, deployments } = catalogOf("small");
    expect(deployments.map(({ spec }) => spec.weights.sources)).toEqual([
      [expect.stringMatching(/^hf:\/\/Qwen\//)],
    ]);
    expect(deployments[0]?.spec.weights.sizeBytes).toBeLessThan(1e9);
    for (const { backing } of models) expect(backing).toMatch(/Qwen2.5 0.5B.*stands in/);
  });

  it("demo: one deployment, marked as a stand-in with its context", () => {
    const { models, deployments } = catalogOf("demo");
    expect(deployments.length).toBe(1);
    for (const model of models) {
      expect(model.standIn).toBe(true);
      expect(model.backing).toMatch(/SmolLM2 135M.*8,192 tokens.*stands in/);
    }
  });

  it("tiny: says that its answers are noise", () => {
    const { models, deployments } = catalogOf("tiny");
    expect(deployments.length).toBe(1);
    for (const { backing } of models) expect(backing).toMatch(/random weights.*noise/);
  });
});
