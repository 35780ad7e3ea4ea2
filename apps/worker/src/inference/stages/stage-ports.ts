import type { HeldWeights } from "@heddle/engines/shards/weights/held-weights";
import type { PullOptions } from "@heddle/engines/weights/pull-weights";
import type { PullHow, StagePorts } from "../engine-ports.ts";

/** Stages of models in this cache. Their code is loaded on the first use: few workers have one. */
export function stagePorts(
  cacheDirectory: string,
  optionsOf: (pull: PullHow) => PullOptions,
): StagePorts {
  let opened: Promise<HeldWeights> | undefined;
  const held = () => {
    opened ??= openHeld(cacheDirectory);
    return opened;
  };
  return {
    index: async (weights, pull) => {
      const { indexedModel } = await import("@heddle/engines/shards/weights/stage-weights");
      return indexedModel(weights, optionsOf(pull));
    },
    plan: async ({ model }, ...demand) => {
      const { planModel } = await import("@heddle/engines/shards/plan-model");
      return planModel(model, ...demand);
    },
    wholeBytes: async (weights, options, pull) => {
      const [{ weightsHeader }, { cuttableModel }, { wholeBytes }] = await Promise.all([
        import("@heddle/engines/weights/ranges/weights-header"),
        import("@heddle/engines/shards/cut-rules"),
        import("@heddle/engines/shards/plan-model"),
      ]);
      const header = await weightsHeader(weights, optionsOf(pull));
      return wholeBytes(cuttableModel(header), options);
    },
    heldIndex: async (digest) => (await held()).index(digest),
    async *heldRange(...range) {
      yield* (await held()).read(...range);
    },
  };
}

async function openHeld(cacheDirectory: string): Promise<HeldWeights> {
  const [weights, stages] = await Promise.all([
    import("@heddle/engines/shards/weights/held-weights"),
    import("@heddle/engines/shards/weights/stage-weights"),
  ]);
  return new weights.HeldWeights(stages.stagesDirectory(cacheDirectory));
}
