import { AppError } from "@heddle/base/errors";
import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import type { Backend } from "../backend.ts";
import { cartPole } from "../environments/cart-pole.ts";
import type { Environment } from "../environments/environment.ts";
import { pendulum } from "../environments/pendulum.ts";
import { initialParameters } from "../initialize.ts";
import type { ParameterClient, Parameters } from "../parameter-client.ts";
import { referenceBackend } from "../reference/reference-backend.ts";
import { PPO_DEFAULTS, type PpoConfig } from "./ppo-config.ts";
import {
  type PpoProgress,
  type PpoWorkerOptions,
  policyFor,
  ppoParameters,
  runPpoWorker,
} from "./ppo-worker.ts";

const CONFIG: PpoConfig = {
  ...PPO_DEFAULTS,
  num_envs: 2,
  num_steps: 8,
  num_minibatches: 2,
  update_epochs: 2,
  hidden: 4,
  // Five whole iterations of 16 steps, and a rest.
  total_timesteps: 90,
  learning_rate: 0.01,
  normalize_observations: true,
};

/** The servers of one worker: displacements are applied by plain SGD. */
class Servers implements ParameterClient {
  readonly held: Parameters;
  readonly rates: number[] = [];

  constructor(held: Parameters) {
    this.held = structuredClone(held);
  }

  async pull(into: Parameters): Promise<number> {
    for (const [name, data] of Object.entries(into)) data.set(this.held[name] ?? []);
    return 0;
  }

  async push(part: Parameters, { learningRate }: { readonly learningRate: number }): Promise<void> {
    this.rates.push(learningRate);
    for (const [name, data] of Object.entries(this.held)) {
      data.set(data.map((value, i) => value - learningRate * (part[name]?.[i] ?? 0)));
    }
  }
}

function begin(config = CONFIG, makeEnvironment: () => Environment = cartPole) {
  const fresh = initialParameters(ppoParameters(makeEnvironment(), config), seededRandom(1));
  const servers = new Servers(fresh);
  const reports: PpoProgress[] = [];
  const run = (more: Partial<PpoWorkerOptions> = {}) =>
    runPpoWorker({
      config,
      makeEnvironment,
      backend: referenceBackend,
      client: servers,
      workers: 1,
      draws: seededRandom,
      done: 0,
      signal: new AbortController().signal,
      parameters: structuredClone(fresh),
      report: async (progress) => {
        reports.push(structuredClone(progress));
        return "continue";
      },
      ...more,
    });
  return { servers, reports, run };
}

test("PPO worker: reports each iteration with the steps of all workers", async () => {
  for (const workers of [1, 2]) {
    const { reports, run } = begin({ ...CONFIG, total_timesteps: workers * 90 });
    await run({ workers });
    expect(reports.map(({ iteration }) => iteration)).toEqual([1, 2, 3, 4, 5]);
    expect(reports.map(({ iterations }) => iterations)).toEqual(Array(5).fill(5));
    const steps = [16, 32, 48, 64, 80].map((of) => workers * of);
    expect(reports.map(({ timesteps }) => timesteps)).toEqual(steps);
    for (const { metrics } of reports) expect(metrics["entropy"]).toBeGreaterThan(0);
  }
});

/** Episodes of two steps with the return 1, then 2, and so on. */
function counter(): Environment {
  let [episode, step] = [0, 0];
  return {
    name: "counter",
    observations: 1,
    actions: 2,
    continuous: false,
    maxSteps: 9,
    reset: (_, observation) => {
      [episode, step] = [episode + 1, 0];
      observation.fill(0);
    },
    step: () => ({ reward: episode / 2, terminated: ++step === 2 }),
  };
}

test("PPO worker: the return is the mean of the last 100 episodes", async () => {
  const config = { ...CONFIG, num_envs: 1, num_steps: 2, num_minibatches: 1 };
  const { reports, run } = begin({ ...config, total_timesteps: 206 }, counter);
  await run();
  const seen = reports.map(({ episodes, episodeReturn }) => [episodes, episodeReturn]);
  expect([seen[0], seen[2], seen[99], seen[102]]).toEqual([
    [1, 1],
    [3, 2],
    [100, 50.5],
    [100, 53.5],
  ]);
});

test("PPO worker: without an episode there is no return", async () => {
  const { reports, run } = begin({ ...CONFIG, total_timesteps: 16 }, pendulum);
  await run();
  expect(reports).toMatchObject([{ episodes: 0 }]);
  expect(reports[0]?.episodeReturn).toBeUndefined();
});

test("PPO worker: a resumed one continues bit by bit", async () => {
  const whole = begin();
  await whole.run();
  const broken = begin();
  const stopped: PpoProgress[] = [];
  await broken.run({
    report: async (progress) => {
      stopped.push(structuredClone(progress));
      return progress.iteration === 2 ? "stop" : "continue";
    },
  });
  expect(stopped).toHaveLength(2);
  const { state } = stopped[1] as PpoProgress;
  await broken.run({ done: 2, state, parameters: structuredClone(broken.servers.held) });
  expect(broken.reports).toEqual(whole.reports.slice(2));
  expect(broken.servers.held).toEqual(whole.servers.held);
});

test("PPO worker: the rate falls only where anneal_lr is set", async () => {
  const rates = async (anneal_lr: boolean) => {
    const { servers, run } = begin({ ...CONFIG, anneal_lr, total_timesteps: 128 });
    await run({ workers: 2 });
    return servers.rates.filter((_, push) => push % 4 === 0);
  };
  expect(await rates(true)).toEqual([0.01, 0.0075, 0.005, 0.0025]);
  expect(await rates(false)).toEqual([0.01, 0.01, 0.01, 0.01]);
});

test("PPO worker: a divergence names its step and iteration", async () => {
  const cold = () => ({ ...counter(), step: () => ({ reward: Number.NaN, terminated: false }) });
  const error = await begin(CONFIG, cold)
    .run()
    .catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "invalid_value" });
  expect((error as AppError).message).toMatch(/^at step 16, in iteration 1, .* has diverged/);
});

test("PPO worker: an error of the servers passes as it is; an abort ends it", async () => {
  const gone = new AppError("unavailable", "no server");
  const { servers, run } = begin();
  const client = {
    pull: (into: Parameters) => servers.pull(into),
    push: () => Promise.reject(gone),
  };
  await expect(run({ client })).rejects.toBe(gone);
  const aborted = AbortSignal.abort(new Error("it is stopped"));
  await expect(run({ signal: aborted })).rejects.toThrow("it is stopped");
});

test("PPO worker: closes every program that it compiled", async () => {
  let open = 0;
  const backend: Backend = {
    ...referenceBackend,
    compile: async (executable) => {
      const compiled = await referenceBackend.compile(executable);
      open++;
      return { run: compiled.run, close: async () => void open-- };
    },
  };
  await begin().run({ backend, report: async () => (open === 2 ? "stop" : "continue") });
  expect(open).toBe(0);
});

test("PPO worker: a policy has the environment's sizes and kind of action", () => {
  expect(policyFor(pendulum(), 7)).toEqual({
    observations: 3,
    actions: 1,
    continuous: true,
    hidden: 7,
  });
  const names = (config: PpoConfig) => ppoParameters(cartPole(), config).map(({ name }) => name);
  const plain = names({ ...CONFIG, normalize_observations: false });
  expect(names(CONFIG).filter((name) => !plain.includes(name))).toEqual([
    "observations.mean",
    "observations.variance",
    "observations.count",
  ]);
});
