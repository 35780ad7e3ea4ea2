import { setTimeout as sleep } from "node:timers/promises";
import { retry } from "@heddle/base/async/retry";
import { AppError } from "@heddle/base/errors";
import { HeddleError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import {
  defaultModel,
  hasFailed,
  isReady,
  type ListedModel,
  listModels,
  modelFailure,
} from "../http/model-list.ts";
import { LoadProgressView, PullProgressView } from "../output/progress.ts";
import type { Terminal } from "../output/terminal.ts";

interface AwaitModelOptions {
  readonly client: Heddle;
  readonly messages: Terminal;
  /** The id to wait for; absent: the first that the cluster lists. */
  readonly model?: string | undefined;
  readonly signal: AbortSignal;
  /** The wait ends after this long without progress. */
  readonly stallMs?: number;
}

/** The result of the wait. `failed`: no worker could get or load the weights. */
export type AwaitedModel =
  | { readonly outcome: "ready"; readonly model: ListedModel }
  | {
      readonly outcome: "failed";
      readonly model: ListedModel | undefined;
      readonly reason: string;
    };

const POLL_MS = 50;
/** A crashed master restarts within this time, or has failed for good. */
const RESTART_MS = 10_000;
const DEFAULT_STALL_MS = 120_000;
/**
 * A failed replica is retried unless the failure is permanent: no other phase for this long is
 * final.
 */
const FAILED_FOR_MS = 1_500;
/** After this many failed tries of every replica, no further one is awaited. */
const MAX_FAILURES = 2;

/** Polls the model list until the model can answer, and shows the pull of its weights. */
export async function awaitModel(options: AwaitModelOptions): Promise<AwaitedModel> {
  const { client, signal, stallMs = DEFAULT_STALL_MS } = options;
  const view = new PullView(options.messages);
  let lastState = "";
  let changedAtMs = performance.now();
  let failures = 0;
  let hadFailed = false;
  try {
    for (;;) {
      const models = await retry(() => listModels(client, signal), {
        backoff: { baseMs: POLL_MS, maxMs: POLL_MS },
        deadlineMs: RESTART_MS,
        signal,
        isPassing: (error) => error instanceof HeddleError && error.code === "unavailable",
      });
      const model = options.model
        ? models.find(({ id }) => id === options.model)
        : defaultModel(models);
      view.show(model);
      if (model && isReady(model)) return { outcome: "ready", model };
      const state = JSON.stringify(model?.replicas ?? []);
      const nowMs = performance.now();
      if (state !== lastState) changedAtMs = nowMs;
      lastState = state;
      const failed = model && hasFailed(model) ? model : undefined;
      if (failed && !hadFailed) failures += 1;
      hadFailed = failed !== undefined;
      const isFinal = failures >= MAX_FAILURES || nowMs - changedAtMs > FAILED_FOR_MS;
      const failure =
        failed && isFinal ? modelFailure(failed) : stallOf(model, nowMs - changedAtMs, stallMs);
      if (failure) return { outcome: "failed", model, reason: failure };
      await sleep(POLL_MS, undefined, { signal });
    }
  } catch (error) {
    if (signal.aborted) throw new AppError("cancelled", "Interrupted.");
    throw error;
  } finally {
    view.end();
  }
}

function stallOf(
  model: ListedModel | undefined,
  unchangedMs: number,
  stallMs: number,
): string | undefined {
  // The engine bounds the load time of a large file.
  const isLoading = model?.replicas.some(({ phase }) => phase === "loading");
  if (isLoading || unchangedMs <= stallMs) return undefined;
  const what =
    model?.replicas.map(({ node, phase }) => `${node} ${phase}`).join(", ") ||
    ["no replica", ...(model?.waitingFor ?? [])].join("; ");
  return `no progress for ${stallMs / 1000} s (${what})`;
}

/** One progress line for the most advanced replica, and one while the model is loading. */
class PullView {
  readonly #messages: Terminal;
  #progress: PullProgressView | undefined;
  #loading: LoadProgressView | undefined;
  #followed: string | undefined;

  constructor(messages: Terminal) {
    this.#messages = messages;
  }

  show(model: ListedModel | undefined): void {
    const replicas = model?.replicas ?? [];
    const pulling = replicas.filter(
      ({ phase, totalBytes }) => phase === "pulling" && totalBytes > 0,
    );
    // One replica is shown to its end, since another may pull from a source with other sizes.
    const furthest =
      pulling.find(({ node }) => node === this.#followed) ??
      pulling.toSorted((a, b) => b.pulledBytes - a.pulledBytes)[0];
    this.#followed = furthest?.node;
    // A ready replica was loaded, even if no poll saw that phase.
    const isLoading = replicas.some(({ phase }) => phase === "loading" || phase === "ready");
    if (furthest && !this.#loading) {
      this.#progress ??= new PullProgressView(
        this.#messages,
        `pulling ${model?.weightsFile || model?.id}`,
      );
      this.#progress.update(furthest.pulledBytes, furthest.totalBytes);
    } else if (isLoading || this.#loading) {
      this.#progress?.end();
      this.#loading ??= new LoadProgressView(this.#messages, `loading the model ${model?.id} ...`);
      this.#loading.update();
    }
  }

  end(): void {
    this.#progress?.end();
    this.#loading?.end();
  }
}
