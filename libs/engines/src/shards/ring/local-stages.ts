import type { Duplex } from "node:stream";
import { joinStages } from "./join-stages.ts";
import { type StageProcess, startStage } from "./stage-process.ts";
import type { StageStart } from "./stage-protocol.ts";

/**
 * The stages of a model but for the last, all as processes of this machine. Each process of the last
 * stage's engine gets new ones: what it knows of their caches begins empty.
 */
export class LocalStages {
  readonly #starts: readonly StageStart[];
  readonly #silenceMs: number | undefined;
  #stages: readonly StageProcess[] = [];
  #closed = false;

  /** In their order. */
  constructor(starts: readonly StageStart[], silenceMs?: number) {
    this.#starts = starts;
    this.#silenceMs = silenceMs;
  }

  get pids(): readonly (number | undefined)[] {
    return this.#stages.map(({ pid }) => pid);
  }

  /** For LlamaEngineOptions.joinStages. Where a stage cannot be started, the link is closed. */
  readonly join = (link: Duplex): void => {
    this.#start(link).catch(() => link.destroy());
  };

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#stages.map((stage) => stage.close()));
  }

  async #start(link: Duplex): Promise<void> {
    await Promise.all(this.#stages.map((stage) => stage.close()));
    const cancel = new AbortController();
    link.once("close", () => cancel.abort());
    const starting = this.#starts.map((start) => startStage(start, cancel.signal));
    const settled = await Promise.allSettled(starting);
    const stages = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    const isWhole = stages.length === this.#starts.length && !link.destroyed && !this.#closed;
    if (!isWhole) {
      await Promise.all(stages.map((stage) => stage.close()));
      link.destroy();
      return;
    }
    this.#stages = stages;
    joinStages(
      link,
      stages.map(({ frames }) => frames),
      this.#silenceMs,
    );
  }
}
