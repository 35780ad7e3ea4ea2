import { Backoff } from "@heddle/base/backoff";
import type { Clock } from "@heddle/base/clock";
import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { LlamaDeployment } from "@heddle/contracts/engine";
import type { StagePlan__Output } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type { Log } from "@heddle/observability/logger";
import type { StageDevices } from "./stage-devices.ts";
import { maxStagesOf, type StageCandidate, type StagedReplica } from "./staged-replica.ts";
import type { WakeUp } from "./wake-up.ts";

const RETRY = { baseMs: 500, maxMs: 30_000 };
/** How long a plan whose stages wait for GPUs holds, if the workers stay as they are. */
const WAITS_MS = 30_000;
/** The codes of a worker that plans: the model is read, or does not fit. Others say the same. */
const NO_FAULT: ReadonlySet<ErrorCode> = new Set(["model_loading", "unprocessable"]);
/** Workers that a plan considers. */
const MAX_WORKERS = 16;

interface DivisionPlannerOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly devices: Pick<StageDevices, "serves" | "held" | "secure" | "need">;
}

/** Workers to plan with, those that are preferred first; each group has those of the one before it. */
export type WorkerGroups = readonly (readonly StageCandidate[])[];

/** Has workers plan one deployment's divisions, one after the other, since they can read the model. */
export class DivisionPlanner {
  readonly #options: DivisionPlannerOptions;
  readonly #wakeUp: WakeUp;
  readonly #backoff: Backoff;
  #notBeforeMs = 0;
  #plannedAtMs = Number.NEGATIVE_INFINITY;
  /** The workers and their GPUs when they were last seen. */
  #seen = "";
  /** The nodes that held GPUs then. */
  #held = "";
  #isPlanning = false;
  /** Failures of workers to plan, by which the next one is chosen. */
  #faults = 0;
  #failure: AppError | undefined;

  constructor(options: DivisionPlannerOptions, wakeUp: WakeUp) {
    this.#options = options;
    this.#wakeUp = wakeUp;
    this.#backoff = new Backoff(RETRY, options.random);
  }

  /** Why the latest plan failed. */
  get failure(): AppError | undefined {
    return this.#failure;
  }

  get isPlanning(): boolean {
    return this.#isPlanning;
  }

  /** No plan is needed. */
  settle(): void {
    this.#failure = undefined;
  }

  /**
   * Asks for a replica on some workers of the first of these groups that can hold it. Where its stages
   * have to wait for GPUs it is planned again when some become free. Returns false where a plan is
   * under way, or it is too early.
   */
  plan(spec: LlamaDeployment, groups: WorkerGroups, onPlan: (replica: StagedReplica) => void) {
    const nowMs = this.#options.clock.monotonicMs();
    if (this.#isPlanning) return false;
    const onGpus = this.#options.devices.serves(spec.key);
    if (onGpus) this.#followGpus(spec, groups);
    if (nowMs < this.#notBeforeMs) {
      this.#wakeUp.after(this.#notBeforeMs - nowMs);
      return false;
    }
    this.#plannedAtMs = nowMs;
    this.#isPlanning = true;
    void this.#secured(spec, groups).then(
      (replica) => {
        this.#isPlanning = false;
        this.#failure = undefined;
        this.#backoff.reset();
        if (replica) onPlan(replica);
        else this.#notBeforeMs = this.#options.clock.monotonicMs() + WAITS_MS;
      },
      (error: unknown) => this.#failed(spec, toAppError(error)),
    );
    return true;
  }

  /** A plan need not wait any more if other GPUs are free, and not at all if it holds others. */
  #followGpus({ key }: LlamaDeployment, groups: WorkerGroups): void {
    const of = ({ node, memoryBytes }: StageCandidate) => `${node.id} ${memoryBytes(key)}`;
    const seen = JSON.stringify(groups.map((group) => group.map(of)));
    const held = [...this.#options.devices.held(key)].join();
    if (seen === this.#seen && held === this.#held) return;
    const soonMs = held === this.#held ? this.#plannedAtMs + RETRY.baseMs : 0;
    this.#seen = seen;
    this.#held = held;
    this.#backoff.reset();
    this.#notBeforeMs = Math.min(this.#notBeforeMs, soonMs);
  }

  /** Undefined where stages wait for GPUs. */
  async #secured(spec: LlamaDeployment, groups: WorkerGroups): Promise<StagedReplica | undefined> {
    const replica = await this.#first(spec, groups);
    const isSecured = await this.#options.devices.secure(replica, groups.at(-1) ?? []);
    return isSecured ? replica : undefined;
  }

  async #first(spec: LlamaDeployment, groups: WorkerGroups): Promise<StagedReplica> {
    const [group = [], ...others] = groups;
    try {
      const asked = roomiest(spec, group);
      if (asked.length < 2) throw tooFew(spec.key, asked, this.#options.devices.need(spec.key));
      return await planned(spec, asked, asked[this.#faults % asked.length]!.node.link);
    } catch (error) {
      // The model does not fit these workers.
      if (others.length === 0 || toAppError(error).code !== "unprocessable") throw error;
      return this.#first(spec, others);
    }
  }

  #failed({ key }: LlamaDeployment, failure: AppError): void {
    const { code, message } = failure;
    const waitMs = this.#backoff.nextMs();
    if (!NO_FAULT.has(code)) this.#faults++;
    this.#isPlanning = false;
    this.#notBeforeMs = this.#options.clock.monotonicMs() + waitMs;
    if (this.#failure?.message !== message) {
      const fields = { deployment: key, code, error: message };
      this.#options.log.warn(fields, "a model could not be divided between workers");
    }
    this.#failure = failure;
    this.#wakeUp.after(waitMs);
  }
}

/** The workers with the most memory, in the order in which they are given. */
function roomiest({ key }: LlamaDeployment, free: readonly StageCandidate[]): StageCandidate[] {
  const bytesOf = ({ memoryBytes }: StageCandidate) => memoryBytes(key) ?? 0;
  const kept = new Set(free.toSorted((a, b) => bytesOf(b) - bytesOf(a)).slice(0, MAX_WORKERS));
  return free.filter((each) => kept.has(each));
}

function tooFew(key: string, able: readonly StageCandidate[], need: string): AppError {
  const names = able.map(({ node }) => node.register.name).join(", ") || "none";
  const each = need === "" ? "" : `, each with ${need} for its stage`;
  const message = `${key} needs two workers${each}; ${names} could have one: start another such worker`;
  return new AppError("unavailable", message);
}

async function planned(
  spec: LlamaDeployment,
  free: readonly StageCandidate[],
  link: StageCandidate["node"]["link"],
): Promise<StagedReplica> {
  if (!link) throw new AppError("unavailable", "the worker that was to plan has gone");
  const { key, file, sources, sha256, sizeBytes, license } = spec.weights;
  const plan = await link.planStages({
    weights: { key, file, sources: [...sources], sha256, sizeBytes, license },
    options: { ...spec.options },
    workers: free.map(({ node: { id, register }, memoryBytes }) => {
      const { name, rack, fabric } = register;
      return { node: id, name, rack, fabric, memoryBytes: memoryBytes(spec.key) ?? 0 };
    }),
    maxStages: maxStagesOf(spec),
  });
  return replicaOf(spec, plan, free);
}

function replicaOf(
  spec: LlamaDeployment,
  { stages, ...shared }: StagePlan__Output,
  free: readonly StageCandidate[],
): StagedReplica {
  const isKnown = stages.every(({ node }) => free.some((each) => each.node.id === node));
  if (stages.length < 2 || !isKnown) {
    throw new AppError("server_error", `a worker planned ${stages.length} stages of ${spec.key}`);
  }
  return { of: spec, parts: stages, shared };
}
