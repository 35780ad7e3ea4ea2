import type { Duplex } from "node:stream";
import { AppError } from "@heddle/base/errors";
import { StageHub } from "./stage-hub.ts";
import { type StageProcess, startStage } from "./stage-process.ts";
import type { StageStart } from "./stage-protocol.ts";

interface LocalStagesOptions {
  readonly silenceMs?: number | undefined;
  /** See EarlierStages. */
  readonly callsAtOnce?: number | undefined;
  /** What carries the frames of a stage; directly if absent. */
  readonly way?: ((frames: Duplex, stage: number) => Duplex) | undefined;
}

/**
 * The stages of a model but for the last, all as processes of this machine. After a loss all are
 * started again.
 */
export class LocalStages {
  readonly #starts: readonly StageStart[];
  readonly #options: LocalStagesOptions;
  /** See EarlierStages. */
  readonly callsAtOnce: number | undefined;
  #stages: readonly StageProcess[] = [];
  #frames: readonly Duplex[] = [];
  #moving = 0;
  /** The processes that others have replaced. */
  readonly #left: StageProcess[] = [];
  #hub: StageHub | undefined;
  #closed = false;

  /** In their order. */
  constructor(starts: readonly StageStart[], options: LocalStagesOptions = {}) {
    this.#starts = starts;
    this.#options = options;
    this.callsAtOnce = options.callsAtOnce;
  }

  get pids(): readonly (number | undefined)[] {
    return this.#stages.map(({ pid }) => pid);
  }

  /** What each of them computes on. */
  get devices(): readonly string[] {
    return this.#stages.map(({ device }) => device);
  }

  get count(): number {
    return this.#starts.length;
  }

  get blocks(): number {
    return this.#starts.at(-1)?.to ?? 0;
  }

  /** See EarlierStages. Where a stage cannot be started, the link is closed. */
  readonly join = (link: Duplex): void => {
    const connect = (signal: AbortSignal) => this.#start(signal);
    const connectMoved = () => this.#startMoved();
    this.#hub = new StageHub(link, { connect, connectMoved, silenceMs: this.#options.silenceMs });
  };

  /** Has another process take the place of a stage. */
  move(stage: number): void {
    this.#moving = stage;
    this.#hub?.move();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#left, ...this.#stages].map((stage) => stage.close()));
  }

  async #startMoved(): Promise<readonly Duplex[]> {
    const process = await startStage(this.#starts[this.#moving]!);
    this.#left.push(this.#stages[this.#moving]!);
    this.#stages = this.#stages.with(this.#moving, process);
    this.#frames = this.#frames.with(this.#moving, this.#framesOf(process, this.#moving));
    return this.#frames;
  }

  #framesOf({ frames }: StageProcess, stage: number): Duplex {
    return this.#options.way?.(frames, stage) ?? frames;
  }

  async #start(signal: AbortSignal): Promise<readonly Duplex[]> {
    await Promise.all(this.#stages.map((stage) => stage.close()));
    const starting = this.#starts.map((start) => startStage(start, signal));
    const settled = await Promise.allSettled(starting);
    const stages = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    this.#stages = stages;
    const failed = settled.find((each) => each.status === "rejected");
    if (!failed && !this.#closed) {
      this.#frames = stages.map((stage, at) => this.#framesOf(stage, at));
      return this.#frames;
    }
    await Promise.all(stages.map((stage) => stage.close()));
    throw failed?.reason ?? new AppError("cancelled", "the stages were closed");
  }
}
