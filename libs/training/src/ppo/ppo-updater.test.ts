import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import type { Backend } from "../backend.ts";
import { initialParameters } from "../initialize.ts";
import { referenceBackend } from "../reference/reference-backend.ts";
import { actorCriticParameters } from "./actor-critic.ts";
import { PPO_DEFAULTS } from "./ppo-config.ts";
import { ppoProgram } from "./ppo-program.ts";
import { localUpdater } from "./ppo-updater.ts";

const SEED = 11;
const POLICY = { observations: 2, actions: 2, continuous: false, hidden: 4 };
const CONFIG = { ...PPO_DEFAULTS, update_epochs: 6, num_minibatches: 4 };
const ROWS = 16;

/** The `approximate_kl` of each minibatch, epoch by epoch, of one update on the same experience. */
async function epochsWith(targetKl: number): Promise<number[][]> {
  const random = seededRandom(SEED);
  const draw = (length: number) => Float32Array.from({ length }, () => 2 * random() - 1);
  const epochs: number[][] = [];
  const backend: Backend = {
    ...referenceBackend,
    compile: async (executable) => {
      const compiled = await referenceBackend.compile(executable);
      return {
        close: () => compiled.close(),
        run: async (feeds) => {
          const results = await compiled.run(feeds);
          epochs.push([...(results["approximate_kl"] ?? [])]);
          return results;
        },
      };
    },
  };
  const config = { ...CONFIG, target_kl: targetKl };
  const updater = await localUpdater({
    ...{ backend, config, random },
    program: ppoProgram(POLICY, ROWS / config.num_minibatches, config),
    client: { pull: () => Promise.resolve(0), push: () => Promise.resolve() },
    parameters: initialParameters(actorCriticParameters(POLICY), random),
  });
  const experience = {
    ...{ observation: draw(2 * ROWS), action: new Int32Array(ROWS).map((_, i) => i % 2) },
    ...{ log_probability: new Float32Array(ROWS).fill(-Math.LN2), value: draw(ROWS) },
    ...{ advantage: draw(ROWS), return: draw(ROWS) },
  };
  await updater.update(experience, 0.02);
  await updater.close();
  return epochs;
}

test("target_kl: ends an update's epochs by the last minibatch, not by the mean", async () => {
  const all = await epochsWith(1e6);
  expect(all.map((epoch) => epoch.length)).toEqual(Array(6).fill(4));
  const lasts = all.map((epoch) => epoch.at(-1) ?? 0);
  const means = all.map((epoch) => epoch.reduce((sum, each) => sum + each, 0) / epoch.length);
  // Each target is halfway between the two of one epoch, so that the results differ somewhere.
  const stopping = (values: readonly number[], target: number) => {
    const at = values.findIndex((value) => value > target);
    return at < 0 ? values.length : at + 1;
  };
  const targets = lasts
    .map((last, epoch) => (last + (means[epoch] ?? 0)) / 2)
    .filter((target) => target > 0 && stopping(lasts, target) !== stopping(means, target));
  expect(targets, `seed ${SEED}`).not.toEqual([]);
  for (const target of targets) {
    expect(await epochsWith(target), `seed ${SEED}`).toHaveLength(stopping(lasts, target));
  }
});
