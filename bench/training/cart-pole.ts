import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import { cartPole } from "@heddle/training/environments/cart-pole";
import { initialParameters } from "@heddle/training/initialize";
import { actorCriticParameters } from "@heddle/training/ppo/actor-critic";
import { PPO_DEFAULTS } from "@heddle/training/ppo/ppo-config";
import { policyFor, runPpoWorker } from "@heddle/training/ppo/ppo-worker";
import { joinJob, openJob, startParameterServer } from "./parameter-process.ts";

export interface CartPoleFigure {
  readonly seed: number;
  readonly stepsPerSecond: number;
  /** The mean of the last 100 episodes at the end, and the best there was. */
  readonly finalReturn: number;
  readonly bestReturn: number;
  /** Steps after which the mean passed 490; absent if never. */
  readonly stepsTo490?: number | undefined;
}

/** PPO with CleanRL's defaults through a real parameter server, by seed. */
export async function measureCartPole(
  seeds: number,
  totalTimesteps: number,
): Promise<CartPoleFigure[]> {
  const server = await startParameterServer();
  const figures: CartPoleFigure[] = [];
  for (let seed = 1; seed <= seeds; seed++) {
    figures.push(await run(server, seed, totalTimesteps));
  }
  return figures;
}

async function run(server: string, seed: number, total: number): Promise<CartPoleFigure> {
  const random = seededRandom(seed);
  const specs = actorCriticParameters(policyFor(cartPole(), PPO_DEFAULTS.hidden));
  const parameters = initialParameters(specs, random);
  const job = await openJob({
    parameters: specs.map(({ name, shape }) => ({ name, shape, type: "f32" })),
    ...{ servers: [server], workers: 1, learningRate: 1, compression: "none" },
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    consistency: { kind: "bsp" },
  });
  const client = await joinJob(job, 0);
  await client.initialize(parameters);
  let finalReturn = 0;
  let bestReturn = 0;
  let stepsTo490: number | undefined;
  const begin = performance.now();
  await runPpoWorker({
    ...{ random, parameters, client, workers: 1, done: 0, makeEnvironment: cartPole },
    config: { ...PPO_DEFAULTS, total_timesteps: total },
    backend: onnxBackend({ device: "cpu", threads: 1 }),
    signal: job.signal,
    report: async ({ episodeReturn, timesteps }) => {
      finalReturn = episodeReturn ?? 0;
      bestReturn = Math.max(bestReturn, finalReturn);
      if (finalReturn >= 490) stepsTo490 ??= timesteps;
      return "go on";
    },
  });
  const seconds = (performance.now() - begin) / 1000;
  await client.close();
  return { seed, stepsPerSecond: total / seconds, finalReturn, bestReturn, stepsTo490 };
}
