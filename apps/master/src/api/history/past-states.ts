import { extname, join } from "node:path";
import { Worker } from "node:worker_threads";
import { AppError } from "@heddle/base/errors";
import { Inject, Injectable, type OnApplicationShutdown } from "@nestjs/common";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { heapBytes } from "../../control-plane/state-memory.ts";
import type { PastAnswer, PastOrder, PastQuestion } from "./past-question.ts";

/** A whole state is read and replayed for each answer. */
const MAX_MS = 60_000;
const RETRY_AFTER_MS = 5_000;

/**
 * Past states of this master, each rebuilt from its files in a thread with a heap of its own. One
 * is rebuilt at a time, for a minute at most; the master continues whatever becomes of the thread.
 */
@Injectable()
export class PastStates implements OnApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #config: MasterConfig;
  #thread: Worker | undefined;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(MASTER_CONFIG) config: MasterConfig,
  ) {
    this.#control = control;
    this.#config = config;
  }

  /** The answer as JSON. Rejects with `gone`, `not_found`, `overloaded` and others. */
  async ask(at: number, question: PastQuestion): Promise<string> {
    const { group, appliedIndex } = this.#control;
    if (!group) throw new AppError("precondition_failed", "This master is not part of a group.");
    if (at > appliedIndex) {
      const message = `Position ${at} is not applied on this master yet: the last is ${appliedIndex}.`;
      throw new AppError("not_found", message, { param: "at" });
    }
    if (this.#thread) {
      const message = "This master is rebuilding another past state. Try again shortly.";
      throw new AppError("overloaded", message, { retryAfterMs: RETRY_AFTER_MS });
    }
    const { dataDirectory, secretsKeyFile } = this.#config;
    const { cluster, id } = group.status();
    const directory = join(dataDirectory, "control");
    const owner = { cluster, node: String(id) };
    const answer = await this.#run({ directory, owner, secretsKeyFile, at, question });
    if (answer.ok) return answer.json;
    const param = answer.code === "gone" ? "at" : undefined;
    throw new AppError(answer.code, answer.message, { param });
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#thread?.terminate();
  }

  async #run(order: PastOrder): Promise<PastAnswer> {
    const path = `./past-state-thread${extname(import.meta.url)}`;
    const thread = new Worker(new URL(path, import.meta.url), {
      workerData: order,
      name: "past-state",
      resourceLimits: { maxOldGenerationSizeMb: Math.ceil(heapBytes() / 2 ** 20) },
    });
    this.#thread = thread;
    const { promise, resolve, reject } = Promise.withResolvers<PastAnswer>();
    const timer = setTimeout(() => {
      const message = `The state at ${order.at} was not rebuilt within ${MAX_MS / 1_000} s.`;
      reject(new AppError("deadline_exceeded", message));
    }, MAX_MS);
    thread.once("message", resolve);
    thread.once("error", (error: Error & { code?: string }) => reject(threadError(error)));
    thread.once("exit", () => reject(new AppError("unavailable", "This master is shutting down.")));
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      await thread.terminate();
      this.#thread = undefined;
    }
  }
}

function threadError(error: Error & { code?: string }): AppError {
  if (error.code !== "ERR_WORKER_OUT_OF_MEMORY") {
    return new AppError("server_error", `The past state was not rebuilt: ${error.message}.`);
  }
  const message = "This master has no memory for a second state. Ask a master with a larger heap.";
  return new AppError("insufficient_memory", message);
}
