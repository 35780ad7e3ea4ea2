import { seededRandom } from "@heddle/base/random";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import { initialParameters } from "@heddle/training/initialize";
import { actorCriticParameters } from "@heddle/training/ppo/actor-critic";
import { PPO_DEFAULTS } from "@heddle/training/ppo/ppo-config";
import { policyFor, runPpoWorker } from "@heddle/training/ppo/ppo-worker";
import { onnxBackend } from "@heddle/backends/onnx-backend";
const base = { total_timesteps: 300_000, num_envs: 8 };
const configs: Record<string, object> = {
  zoo: { ...base, num_steps: 32, num_minibatches: 1, gae_lambda: 0.8, gamma: 0.98, update_epochs: 20, ent_coef: 0, learning_rate: 1e-3 },
  mid: { ...base, num_steps: 64, num_minibatches: 4, gae_lambda: 0.9, gamma: 0.98, update_epochs: 8, ent_coef: 0, learning_rate: 1e-3 },
  long: { ...base, num_steps: 128, num_minibatches: 4, update_epochs: 8, ent_coef: 0, learning_rate: 1e-3 },
};
const name = process.argv[2] ?? "zoo";
for (const seed of [1, 2, 3, 4, 5]) {
  const make = ENVIRONMENTS.get("CartPole-v1")!;
  const random = seededRandom(seed);
  const parameters = initialParameters(actorCriticParameters(policyFor(make(), 64)), random);
  const held = Object.fromEntries(Object.entries(parameters).map(([n, d]) => [n, d.slice()]));
  let at = 0, best = 0, last = 0; const begin = performance.now();
  await runPpoWorker({
    config: { ...PPO_DEFAULTS, ...configs[name] } as typeof PPO_DEFAULTS, makeEnvironment: make,
    backend: onnxBackend({ device: "cpu", threads: 1 }), random, workers: 1, parameters, done: 0,
    signal: new AbortController().signal,
    client: { pull: async (into) => { for (const [n, d] of Object.entries(held)) into[n]!.set(d); return 0; },
      push: async (part) => { for (const [n, d] of Object.entries(part)) { const h = held[n]!; for (let i = 0; i < d.length; i++) h[i]! -= d[i]!; } } },
    report: async ({ episodeReturn = 0, timesteps }) => { last = episodeReturn; best = Math.max(best, last); if (last >= 490) { at = timesteps; return "stop"; } return "go on"; },
  });
  console.log(name, seed, { at, best, last, s: (performance.now() - begin) / 1000 });
}
