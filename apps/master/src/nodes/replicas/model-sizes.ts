import { Backoff } from "@heddle/base/backoff";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { LlamaDeployment } from "@heddle/contracts/engine";
import { canHaveStage, type StageCandidate } from "./staged-replica.ts";

const RETRY = { baseMs: 1_000, maxMs: 60_000 };
/** Workers that are asked at a time: a file may lie on some of them alone, and one may not be reached. */
const MAX_ASKED = 3;
/** After this many rounds without an answer the weights alone count. */
const MAX_ROUNDS = 5;

/** Weights of at most this share of a worker's memory leave room for cache and process. */
const ROOMY_SHARE = 0.5;

/** What is known of a whole model. */
export interface WholeSize {
  /** Memory that it takes, with cache and process; absent where no worker could read it. */
  readonly bytes?: number | undefined;
  /** Why workers cannot divide it. */
  readonly refusal?: string | undefined;
}

interface Asked {
  readonly spec: LlamaDeployment;
  size: WholeSize | undefined;
  /** No more is to be learned. */
  isDone: boolean;
  isAsking: boolean;
  rounds: number;
  notBeforeMs: number;
  /** What a worker says that reads it. */
  reading: string | undefined;
  readonly backoff: Backoff;
}

interface ModelSizesOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** Called when one is known. */
  readonly onChange: () => void;
}

/** What whole models take in one worker. A worker reports it, since it can read the header of the file. */
export class ModelSizes {
  readonly #options: ModelSizesOptions;
  /** Keyed by deployment. */
  readonly #asked = new Map<string, Asked>();

  constructor(options: ModelSizesOptions) {
    this.#options = options;
  }

  clear(): void {
    this.#asked.clear();
  }

  /** Forgets other deployments than these. */
  keep(deployments: { has(key: string): boolean }): void {
    for (const key of this.#asked.keys()) if (!deployments.has(key)) this.#asked.delete(key);
  }

  /** Keyed by deployment: the memory of the whole model. */
  known(): ReadonlyMap<string, number> {
    const known = new Map<string, number>();
    for (const [key, { size }] of this.#asked) if (size?.bytes) known.set(key, size.bytes);
    return known;
  }

  /** Keyed by deployment that a worker reads. */
  reading(): ReadonlyMap<string, string> {
    const messages = new Map<string, string>();
    for (const [key, { reading }] of this.#asked) if (reading) messages.set(key, reading);
    return messages;
  }

  /**
   * Undefined while workers are asked for the first time, or one reads it. A single one is not asked: there is no other
   * to divide the model with, and it may have to fetch the header.
   */
  of(spec: LlamaDeployment, candidates: readonly StageCandidate[]): WholeSize | undefined {
    let asked = this.#asked.get(spec.key);
    if (asked?.spec !== spec) {
      const backoff = new Backoff(RETRY, this.#options.random);
      const none = { size: undefined, reading: undefined, isDone: false, isAsking: false };
      asked = { spec, backoff, rounds: 0, notBeforeMs: 0, ...none };
      this.#asked.set(spec.key, asked);
    }
    const workers = candidates.filter(({ leaving, node }) => !leaving && canHaveStage(node));
    if (workers.length < 2) return asked.size ?? {};
    const isDue = this.#options.clock.monotonicMs() >= asked.notBeforeMs;
    if (!asked.isDone && !asked.isAsking && isDue) void this.#ask(asked, workers);
    return asked.size;
  }

  async #ask(asked: Asked, workers: readonly StageCandidate[]): Promise<void> {
    asked.isAsking = true;
    const at = (asked.rounds * MAX_ASKED) % workers.length;
    const inTurn = [...workers.slice(at), ...workers.slice(0, at)];
    const answer =
      (await answerOf(asked.spec, inTurn.slice(0, MAX_ASKED))) ??
      (await readBy(asked.spec, workers));
    asked.isAsking = false;
    asked.reading = answer?.reading;
    if (asked.reading === undefined) {
      asked.isDone = answer !== undefined || ++asked.rounds >= MAX_ROUNDS;
      asked.size = answer ?? {};
    } else asked.backoff.reset();
    asked.notBeforeMs = this.#options.clock.monotonicMs() + asked.backoff.nextMs();
    this.#options.onChange();
  }
}

/** What a worker says of a whole model. */
interface Answer extends WholeSize {
  /** It reads it. */
  readonly reading?: string | undefined;
}

/** The first answer that a worker gives, which reads the header alone. */
async function answerOf(
  spec: LlamaDeployment,
  workers: readonly StageCandidate[],
): Promise<Answer | undefined> {
  return await Promise.any(workers.map((worker) => askedOf(spec, worker, false))).catch(
    () => undefined,
  );
}

/**
 * The answer of the worker that would hold the whole model, which reads all of it for that: some sources
 * give no header alone. Undefined where it fails, or the weights alone decide.
 */
async function readBy(
  spec: LlamaDeployment,
  workers: readonly StageCandidate[],
): Promise<Answer | undefined> {
  const bytesOf = ({ memoryBytes }: StageCandidate) => memoryBytes(spec.key) ?? 0;
  const largest = workers.reduce((a, b) => (bytesOf(b) > bytesOf(a) ? b : a));
  const share = (spec.weights.sizeBytes ?? 0) / bytesOf(largest);
  const isDecided = !(share > ROOMY_SHARE && share <= 1);
  return isDecided ? undefined : await askedOf(spec, largest, true).catch(() => undefined);
}

async function askedOf(
  { weights, options }: LlamaDeployment,
  { node }: StageCandidate,
  whole: boolean,
): Promise<Answer> {
  const request = { weights: { ...weights, sources: [...weights.sources] }, options, whole };
  try {
    const { memoryBytes } = await node.link!.sizeModel(request);
    return { bytes: memoryBytes };
  } catch (error) {
    const { code, message } = toAppError(error);
    if (code === "unprocessable") return { refusal: message };
    if (code === "model_loading") return { reading: message };
    throw error;
  }
}
