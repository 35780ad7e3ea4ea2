import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { AppError, toAppError } from "@heddle/base/errors";
import { seededRandom } from "@heddle/base/random";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import {
  type PluginTraining,
  parsePluginTraining,
  parseTrainingConfig,
  type TrainingConfig,
} from "@heddle/contracts/training";
import { trainingFaults } from "@heddle/contracts/training-faults";
import type { Log } from "@heddle/observability/logger";
import { findSource } from "@heddle/plugin-kit/loading/plugin-source";
import type { Backend } from "@heddle/training/backend";
import { initialParameters } from "@heddle/training/initialize";
import { elementCount } from "@heddle/training/ir/value";
import type { Parameters } from "@heddle/training/parameter-client";
import type { RankState, RoundReport } from "@heddle/training/training-loop";
import { Checkpointer } from "../checkpoints/checkpointer.ts";
import { findRankState } from "../checkpoints/rank-state.ts";
import { writeLineage } from "../data/lineage.ts";
import { type LoadedPlugins, loadPlugins } from "../plans/plugin/load-plugins.ts";
import { pluginPlan } from "../plans/plugin/plugin-plan.ts";
import { ppoPlan } from "../plans/ppo/ppo-plan.ts";
import type { TrainingPlan } from "../plans/training-plan.ts";
import { weavePlan } from "../plans/weave/weave-plan.ts";
import { chooseBackend } from "./choose-backend.ts";
import { codeVersion } from "./code-version.ts";
import { type JobClient, JobShards, nodePlace } from "./job-shards.ts";
import { ProgressWriter } from "./progress-writer.ts";

/** Signals and outputs of a running trainer. */
export interface TrainerControl {
  /** Ends the trainer. */
  readonly signal: AbortSignal;
  /** Registers the action for a requested checkpoint. */
  onCheckpointRequest(take: () => void): void;
  readonly log: Log;
}

/** How long rank 0 waits, under ssp and asp, for others that push nothing more. */
const LAST_PARTS_MS = 60_000;
const POLL_MS = 100;
/** In rank 0's state with its last checkpoint: the return was reached, so no round follows. */
const REACHED = "heddle.reached";

/**
 * One task of a training job, from its orders to its artifacts: join the shards, run the
 * algorithm's loop, and export the result.
 */
export async function runTrainer(orders: TrainerOrders, control: TrainerControl): Promise<void> {
  const plugins = await loadPlugins(orders.plugins ?? [], control.log);
  const config = checkedConfig(orders);
  const backend = await chooseBackend(config, orders, control.log);
  const plan = planFor(config, plugins, backend, orders);
  const { signal, log } = control;
  const { ticket, authority } = orders;
  const credentials = { ticket, authority };
  const shards = new JobShards({ orders, config, plan, credentials, signal, log });
  log.info({}, greeting(orders, plan, backend));
  const initial = () => initialParameters(plan.parameters, seededRandom(config.seed));
  const joined = await joinUnlessEnded(shards, initial, orders, log);
  if (!joined) return;
  const { client, done } = joined;
  const code = codeVersion(
    orders.release,
    (orders.plugins ?? []).map((entry) => findSource(entry).file),
  );
  const run: Run = { orders, control, config, backend, plan, shards, client, done, code };
  try {
    await trainAndLeave(run);
  } finally {
    await client.close();
  }
}

/**
 * Undefined where rank 0 has ended the job before this task joined: a replacement, or a slow start
 * under asp or ssp.
 */
async function joinUnlessEnded(
  shards: JobShards,
  initial: () => Parameters,
  { rank }: TrainerOrders,
  log: Log,
): Promise<Awaited<ReturnType<JobShards["join"]>> | undefined> {
  try {
    return await shards.join(initial);
  } catch (error) {
    if (toAppError(error).code !== "gone" || rank === 0) throw error;
    log.info({}, "the job is done: rank 0 has ended it");
    return undefined;
  }
}

/** The work of a job, by a built-in algorithm or a plugin's. */
type JobConfig = TrainingConfig | PluginTraining;

/** A trainer that has joined its job. */
interface Run {
  readonly orders: TrainerOrders;
  readonly control: TrainerControl;
  readonly config: JobConfig;
  readonly backend: Backend;
  readonly plan: TrainingPlan;
  readonly shards: JobShards;
  readonly client: JobClient;
  readonly done: number;
  /** Identifies the running code. */
  readonly code: string;
}

async function trainAndLeave(run: Run): Promise<void> {
  const { orders, plan, client, shards, control } = run;
  const parameters = zeros(plan);
  const progress = await progressOf(run);
  try {
    const ending = await train(run, parameters, progress);
    if (orders.rank !== 0) return;
    await leaveArtifacts(run, parameters, progress);
    await shards.close();
    if (ending === "stopped early") await client.dismiss();
  } catch (error) {
    // Rank 0 closes the shards when the job is done, perhaps before this task's last step.
    if (toAppError(error).code !== "gone" || orders.rank === 0) throw error;
    control.log.info({}, "the job is done: rank 0 has ended it");
    await client.dismiss();
  }
}

/** The algorithm's loop; between its rounds checkpoints are taken and reported. */
async function train(
  run: Run,
  parameters: Parameters,
  progress: ProgressWriter,
): Promise<"finished" | "stopped early"> {
  const { orders, control, plan, shards, client, done } = run;
  const { signal, log } = control;
  const state = await ownState(run);
  if (state && REACHED in state) {
    await client.pull(parameters);
    return "stopped early";
  }
  const checkpointer = new Checkpointer({
    rank: orders.rank,
    tasks: orders.tasks,
    directory: orders.checkpointDirectory,
    shards,
    log,
    keep: orders.keepCheckpoints,
    onDurable: (name, round) => progress.checkpoint(name, plan.stepAfter(round)),
    onStateSaved: () => progress.onStateSaved(),
    settle: async () => client.exchange?.settle(),
  });
  control.onCheckpointRequest(() => checkpointer.request());
  let ending = "finished" as "finished" | "stopped early";
  try {
    await plan.run({
      client: checkpointer.watch(client),
      parameters,
      done,
      signal,
      exchange: client.exchange && checkpointer.watchExchange(client.exchange),
      state,
      report: async (round) => {
        progress.round(round);
        await checkpointer.atRoundEnd(round);
        // Signals arrive only when the event loop turns, which a loop on one machine may not let
        // happen.
        await new Promise((resolve) => setImmediate(resolve));
        if (!round.reached || orders.rank !== 0) return "continue";
        log.info({}, `the return reached ${round.reward}: done at step ${round.step}`);
        ending = "stopped early";
        return "stop";
      },
    });
    // Rank 0 holds the result that reached the goal; outstanding parts of others would change it.
    if (orders.rank === 0 && ending !== "stopped early") {
      await checkpointer.whileWaiting(() => awaitOthers(run, parameters));
    }
    if (orders.rank === 0 && progress.latest) {
      await checkpointer.atEnd(atEnding(progress.latest, ending));
    }
  } finally {
    checkpointer.close();
  }
  return ending;
}

/** The state for the last checkpoint. */
function atEnding(
  { round, state }: RoundReport,
  ending: "finished" | "stopped early",
): Pick<RoundReport, "round" | "state"> {
  if (ending === "finished") return { round, state };
  return { round, state: { ...state, [REACHED]: Float32Array.of(1) } };
}

/** This rank's state with the checkpoint from which the job resumes. */
async function ownState({ orders, plan, done, control }: Run): Promise<RankState | undefined> {
  if (orders.resumeFrom === "") return undefined;
  const found = await findRankState(orders.checkpointDirectory, orders.rank, done);
  if (found?.round === done) return found.state;
  // No later round would correct it: the job would export an older average.
  if (done >= plan.rounds) return undefined;
  control.log.info(
    {},
    found
      ? `rank ${orders.rank} continues with what it kept at round ${found.round}, not ${done}`
      : `rank ${orders.rank} has nothing of its own from before: its optimizer starts from zero`,
  );
  return found?.state;
}

/** Under ssp and asp rank 0 may finish before others, whose parts belong to the result. */
async function awaitOthers(
  { config, plan, shards, client, control }: Run,
  parameters: Parameters,
): Promise<void> {
  if (config.consistency === "bsp") return;
  let rounds = await shards.rounds();
  let movedAtMs = performance.now();
  while (rounds < plan.rounds) {
    await delay(POLL_MS, undefined, { signal: control.signal });
    const now = await shards.rounds();
    if (now > rounds) movedAtMs = performance.now();
    rounds = now;
    if (performance.now() - movedAtMs < LAST_PARTS_MS) continue;
    control.log.warn(
      {},
      `continuing without parts of others: ${rounds} of ${plan.rounds} rounds are in`,
    );
    break;
  }
  await client.pullAlone(parameters);
}

async function leaveArtifacts(
  { orders, config, plan, backend, done, control, code }: Run,
  parameters: Parameters,
  progress: ProgressWriter,
): Promise<void> {
  const { artifactDirectory: directory, jobId, jobName, attempt } = orders;
  const { algorithm, ...rest } = config;
  const { step = plan.stepAfter(done), loss, reward } = progress.latest ?? {};
  const lineage = {
    jobId,
    jobName,
    attempt,
    algorithm,
    config: rest,
    data: plan.data,
    codeVersion: code,
    tokenizer: plan.tokenizer,
    step,
    loss,
    reward,
    backend: backend.name,
    device: backend.device,
  };
  await plan.writeArtifacts(directory, parameters, lineage);
  await writeLineage(directory, lineage);
  control.log.info({}, `done at step ${step}; artifacts are in ${directory}`);
}

function checkedConfig(orders: TrainerOrders): JobConfig {
  const [fault] = trainingFaults(orders.algorithm, orders.config, orders.tasks);
  if (fault) throw new AppError("invalid_value", fault.detail, { param: fault.param });
  if (orders.parameterServers.length === 0) {
    throw new AppError("invalid_value", "the task was started without a parameter server");
  }
  if (orders.algorithm === "ppo" || orders.algorithm === "weave") {
    return parseTrainingConfig(orders.algorithm, orders.config);
  }
  return parsePluginTraining(orders.algorithm, orders.config);
}

function planFor(
  config: JobConfig,
  plugins: LoadedPlugins,
  backend: Backend,
  { rank, tasks, nodes }: TrainerOrders,
): TrainingPlan {
  if ("own" in config) return pluginPlan(config, plugins, backend, { rank, tasks });
  if (config.algorithm === "ppo") {
    return ppoPlan(config, plugins.environments, backend, { rank, tasks });
  }
  const place = nodePlace(nodes, rank, tasks);
  return weavePlan(config, backend, { rank, tasks, nodes: place.nodes });
}

async function progressOf({ orders, plan, backend, client }: Run): Promise<ProgressWriter> {
  const { artifactDirectory, progressFile, rank } = orders;
  await mkdir(artifactDirectory, { recursive: true, mode: 0o700 });
  return new ProgressWriter({
    progressFile,
    metricsFile: rank === 0 ? join(artifactDirectory, "metrics.jsonl") : undefined,
    totalSteps: plan.stepAfter(plan.rounds),
    backend: backend.name,
    device: backend.device,
    traffic: () => client.traffic(),
  });
}

function zeros({ parameters }: TrainingPlan): Parameters {
  return Object.fromEntries(
    parameters.map(({ name, shape }) => [name, new Float32Array(elementCount(shape))]),
  );
}

function greeting(orders: TrainerOrders, plan: TrainingPlan, backend: Backend): string {
  const { rank, tasks, algorithm, parameterServers } = orders;
  const numbers = plan.parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  const shards = `${parameterServers.length} shard${parameterServers.length === 1 ? "" : "s"}`;
  const { tokenizer } = plan;
  const tokens = tokenizer?.sha256
    ? `, ${tokenizer.tokens} ${tokenizer.type} tokens (${tokenizer.sha256.slice(0, 16)})`
    : "";
  return (
    `rank ${rank} of ${tasks}: ${algorithm} with ${numbers} parameters in ${shards}${tokens}, ` +
    `on ${backend.name} (${backend.device})`
  );
}
