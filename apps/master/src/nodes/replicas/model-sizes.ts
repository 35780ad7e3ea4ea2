import { Backoff } from "@heddle/base/backoff";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { LlamaDeployment } from "@heddle/contracts/engine";
import { canHaveStage, type StageCandidate } from "./staged-replica.ts";

const RETRY = { baseMs: 1_000, maxMs: 60_000 };
/** Workers that are asked one after the other: a file may lie on some of them alone. */
const MAX_ASKED = 3;
/** After this many rounds without an answer the weights alone count. */
const MAX_ROUNDS = 5;

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
  /** By deployment. */
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

  /**
   * Undefined while workers are asked for the first time. A single one is not asked: there is no other
   * to divide the model with, and it may have to fetch the header.
   */
  of(spec: LlamaDeployment, candidates: readonly StageCandidate[]): WholeSize | undefined {
    let asked = this.#asked.get(spec.key);
    if (asked?.spec !== spec) {
      const backoff = new Backoff(RETRY, this.#options.random);
      const none = { size: undefined, isDone: false, isAsking: false, rounds: 0, notBeforeMs: 0 };
      asked = { spec, backoff, ...none };
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
    const size = await answerOf(asked.spec, workers.slice(0, MAX_ASKED));
    asked.isAsking = false;
    asked.isDone = size !== undefined || ++asked.rounds >= MAX_ROUNDS;
    asked.notBeforeMs = this.#options.clock.monotonicMs() + asked.backoff.nextMs();
    asked.size = size ?? {};
    this.#options.onChange();
  }
}

/** The answer of the first worker that gives one. */
async function answerOf(
  { weights, options }: LlamaDeployment,
  workers: readonly StageCandidate[],
): Promise<WholeSize | undefined> {
  const request = { weights: { ...weights, sources: [...weights.sources] }, options };
  for (const { node } of workers) {
    try {
      const { memoryBytes } = await node.link!.sizeModel(request);
      return { bytes: memoryBytes };
    } catch (error) {
      const { code, message } = toAppError(error);
      if (code === "unprocessable") return { refusal: message };
    }
  }
  return undefined;
}
