import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import { initialParameters } from "@heddle/training/initialize";
import { PPO_DEFAULTS, type PpoConfig } from "@heddle/training/ppo/ppo-config";
import { ppoParameters, runPpoWorker } from "@heddle/training/ppo/ppo-worker";
import { joinBenchJob, openJob, startParameterProcess } from "./parameter-process.ts";

/** One run of PPO. */
export interface PpoFigure {
  readonly environment: string;
  readonly seed: number;
  /** By the clock, and by the processor time of this process, as on a core of its own. */
  readonly stepsPerSecond: number;
  readonly stepsPerCpuSecond: number;
  /** The mean of the last 100 episodes at the end, and the best there was. */
  readonly finalReturn: number;
  readonly bestReturn: number;
}

/** CartPole by CleanRL's defaults, the others by the values of their examples. */
const SETTINGS: Readonly<Record<string, Partial<PpoConfig>>> = {
  "CartPole-v1": {},
  "Acrobot-v1": {
    total_timesteps: 1_000_000,
    num_envs: 16,
    learning_rate: 2e-3,
    ent_coef: 0,
    gae_lambda: 0.94,
    update_epochs: 8,
  },
  "MountainCar-v0": {
    total_timesteps: 1_000_000,
    num_envs: 16,
    num_steps: 16,
    learning_rate: 1e-3,
    normalize_observations: true,
    normalize_rewards: true,
    gae_lambda: 0.98,
    ent_coef: 0,
    clip_vloss: false,
    bootstrap_truncated: false,
  },
  "Pendulum-v1": {
    total_timesteps: 200_000,
    num_steps: 1024,
    learning_rate: 1e-3,
    gamma: 0.9,
    update_epochs: 10,
    num_minibatches: 64,
    ent_coef: 0,
    clip_vloss: false,
  },
};

/** PPO through a real parameter server, by environment and seed. */
export async function measurePpo(
  environments: readonly string[],
  seeds: number,
  timesteps: number | undefined,
): Promise<PpoFigure[]> {
  const { address: server } = await startParameterProcess();
  const figures: PpoFigure[] = [];
  for (const environment of environments) {
    const config = { ...PPO_DEFAULTS, ...SETTINGS[environment] };
    const total = timesteps ?? config.total_timesteps;
    for (let seed = 1; seed <= seeds; seed++) {
      figures.push(await run(server, environment, seed, { ...config, total_timesteps: total }));
    }
  }
  return figures;
}

async function run(
  server: string,
  environment: string,
  seed: number,
  config: PpoConfig,
): Promise<PpoFigure> {
  const makeEnvironment = ENVIRONMENTS.get(environment);
  if (!makeEnvironment) throw new Error(`there is no environment ${environment}`);
  const random = seededRandom(seed);
  const specs = ppoParameters(makeEnvironment(), config);
  const parameters = initialParameters(specs, random);
  const job = await openJob({
    parameters: specs.map(({ name, shape }) => ({ name, shape, type: "f32" })),
    servers: [server],
    workers: 1,
    learningRate: 1,
    compression: "none",
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    consistency: { kind: "bsp" },
  });
  const client = await joinBenchJob(job, 0);
  await client.initialize(parameters);
  let finalReturn = Number.NEGATIVE_INFINITY;
  let bestReturn = Number.NEGATIVE_INFINITY;
  const [begin, before] = [performance.now(), process.cpuUsage()];
  await runPpoWorker({
    parameters,
    client,
    workers: 1,
    done: 0,
    makeEnvironment,
    config,
    draws: () => random,
    backend: onnxBackend({ device: "cpu", threads: 1 }),
    signal: job.signal,
    report: ({ episodeReturn }) => {
      finalReturn = episodeReturn ?? finalReturn;
      bestReturn = Math.max(bestReturn, finalReturn);
      return Promise.resolve("continue");
    },
  });
  const { user, system } = process.cpuUsage(before);
  const seconds = (performance.now() - begin) / 1e3;
  await client.close();
  const { total_timesteps: steps } = config;
  return {
    environment,
    seed,
    finalReturn,
    bestReturn,
    stepsPerSecond: steps / seconds,
    stepsPerCpuSecond: steps / ((user + system) / 1e6),
  };
}
