import { StepQueue } from "@heddle/base/async/step-queue";
import { forEachInSteps, runToEnd, type Steps } from "@heddle/base/async/steps";
import { Inject, type OnApplicationShutdown } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../nodes/node-directory.ts";

/** An engine's last report. */
interface EngineTokens {
  readonly prompt: number;
  readonly generated: number;
}

/** Monotonic totals at one time. */
interface Totals {
  readonly promptTokens: number;
  readonly generatedTokens: number;
  readonly proposals: number;
  readonly proposalsDone: number;
  readonly proposalSeconds: number;
}

/** Rates per second over the window. */
export interface Rates {
  readonly windowSeconds: number;
  readonly promptTokensPerSecond: number;
  readonly generatedTokensPerSecond: number;
  readonly proposalsPerSecond: number;
  /** Undefined if no proposal was answered in the window. */
  readonly proposalSeconds: number | undefined;
}

const SAMPLE_EVERY_MS = 1_000;
const WINDOW_SAMPLES = 10;

/**
 * Rates over a sliding window of 10 s, and totals that survive an engine's restart, which resets
 * its counters. Sampled in the background, so that reading changes nothing.
 */
export class Throughput implements OnApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #directory: NodeDirectory;
  readonly #queue: StepQueue;
  readonly #timer: NodeJS.Timeout;
  #isSampling = false;
  /** Keyed by node and deployment: its engine's last report. */
  #engines = new Map<string, EngineTokens>();
  #promptTokens = 0;
  #generatedTokens = 0;
  #samples: { readonly atMs: number; readonly totals: Totals }[] = [];

  /** Samples in the queue; `count` must run there too. */
  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(StepQueue) queue: StepQueue,
  ) {
    this.#control = control;
    this.#directory = directory;
    this.#queue = queue;
    runToEnd(this.#sample());
    this.#timer = setInterval(() => void this.#sampleInTurns(), SAMPLE_EVERY_MS);
    this.#timer.unref();
  }

  /** Tokens that the engines of this master's nodes had processed at the last count. */
  tokens(): { readonly prompt: number; readonly generated: number } {
    return { prompt: this.#promptTokens, generated: this.#generatedTokens };
  }

  /** Up to the last count. */
  rates(): Rates {
    const first = this.#samples[0];
    const seconds = first ? (performance.now() - first.atMs) / 1000 : 0;
    if (!first || seconds < SAMPLE_EVERY_MS / 1000) return NO_RATES;
    const now = this.#totals();
    const { totals } = first;
    const done = now.proposalsDone - totals.proposalsDone;
    return {
      windowSeconds: seconds,
      promptTokensPerSecond: (now.promptTokens - totals.promptTokens) / seconds,
      generatedTokensPerSecond: (now.generatedTokens - totals.generatedTokens) / seconds,
      proposalsPerSecond: (now.proposals - totals.proposals) / seconds,
      proposalSeconds:
        done === 0 ? undefined : (now.proposalSeconds - totals.proposalSeconds) / done,
    };
  }

  onApplicationShutdown(): void {
    clearInterval(this.#timer);
  }

  /** Counts the tokens since the last count; one run at a time. */
  *count(): Steps<void> {
    const engines = new Map<string, EngineTokens>();
    yield* forEachInSteps(this.#directory.nodes(), ({ id, replicas }) => {
      for (const { deployment, load } of replicas) {
        const key = `${id}\n${deployment}`;
        const before = this.#engines.get(key) ?? { prompt: 0, generated: 0 };
        this.#promptTokens += grown(before.prompt, load.promptTokens);
        this.#generatedTokens += grown(before.generated, load.generatedTokens);
        engines.set(key, { prompt: load.promptTokens, generated: load.generatedTokens });
      }
    });
    this.#engines = engines;
  }

  async #sampleInTurns(): Promise<void> {
    if (this.#isSampling) return;
    this.#isSampling = true;
    await this.#queue.run(() => this.#sample());
    this.#isSampling = false;
  }

  *#sample(): Steps<void> {
    yield* this.count();
    this.#samples.push({ atMs: performance.now(), totals: this.#totals() });
    if (this.#samples.length > WINDOW_SAMPLES) this.#samples.shift();
  }

  #totals(): Totals {
    const counts = this.#control.group?.counts();
    const { proposals = 0, proposalsFailed = 0, proposalSeconds = 0 } = counts ?? {};
    return {
      promptTokens: this.#promptTokens,
      generatedTokens: this.#generatedTokens,
      proposals,
      proposalsDone: proposals - proposalsFailed,
      proposalSeconds,
    };
  }
}

const NO_RATES: Rates = {
  windowSeconds: 0,
  promptTokensPerSecond: 0,
  generatedTokensPerSecond: 0,
  proposalsPerSecond: 0,
  proposalSeconds: undefined,
};

/** A counter that has decreased was reset. */
function grown(before: number, now: number): number {
  return now >= before ? now - before : now;
}
