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
/** The codes of a worker that plans: the model is read, or does not fit. Others say the same. */
const NO_FAULT: ReadonlySet<ErrorCode> = new Set(["model_loading", "unprocessable"]);
/** Workers that a plan considers. */
const MAX_WORKERS = 16;

interface DivisionPlannerOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly devices: Pick<StageDevices, "reserve">;
}

/** Has workers plan one deployment's divisions, one after the other, since they can read the model. */
export class DivisionPlanner {
  readonly #options: DivisionPlannerOptions;
  readonly #wakeUp: WakeUp;
  readonly #backoff: Backoff;
  #notBeforeMs = 0;
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
   * Asks for a replica on some of the free workers, which holds its devices when it is planned.
   * Returns false where a plan is under way, or it is too early.
   */
  plan(
    spec: LlamaDeployment,
    free: readonly StageCandidate[],
    onPlan: (replica: StagedReplica) => void,
  ): boolean {
    if (this.#isPlanning || this.#options.clock.monotonicMs() < this.#notBeforeMs) return false;
    const asked = roomiest(spec, free);
    this.#isPlanning = true;
    void this.#planned(spec, asked).then(
      (replica) => {
        this.#isPlanning = false;
        this.#failure = undefined;
        this.#backoff.reset();
        onPlan(replica);
      },
      (error: unknown) => this.#failed(spec, toAppError(error)),
    );
    return true;
  }

  async #planned(spec: LlamaDeployment, asked: readonly StageCandidate[]): Promise<StagedReplica> {
    const { link } = asked[this.#faults % asked.length]?.node ?? {};
    const replica = await planned(spec, asked, link);
    const nodes = replica.parts.map(({ node }) => node);
    await this.#options.devices.reserve(spec.key, nodes);
    return replica;
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

async function planned(
  spec: LlamaDeployment,
  free: readonly StageCandidate[],
  link: StageCandidate["node"]["link"],
): Promise<StagedReplica> {
  if (free.length < 2 || !link) {
    const message = `${free.length} workers are there that could have a stage of ${spec.key}, with free GPUs if it asks for some, and it needs two: start more`;
    throw new AppError("unavailable", message);
  }
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
