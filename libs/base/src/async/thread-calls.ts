import type { MessagePort, Worker } from "node:worker_threads";
import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";

/** Calls that one thread answers for another: one plain argument, an abort, a plain result. */
export type ThreadApi<Api> = {
  [Name in keyof Api]: (argument: never, signal: AbortSignal) => Promise<unknown>;
};

type Call = { readonly call: number; readonly name: string; readonly argument: unknown };
type Abort = { readonly abort: number };
type Reply = { readonly call: number; readonly result?: unknown; readonly error?: PlainError };
interface PlainError {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Calls of one thread that may wait for an answer. */
const MAX_CALLS = 8192;

/** The caller's side. */
export class ThreadCalls<Api extends ThreadApi<Api>> {
  readonly #worker: Worker;
  readonly #name: string;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #next = 1;
  #ended: AppError | undefined;

  /** `name` is its name in errors, as `the shard`. */
  constructor(worker: Worker, name: string) {
    this.#worker = worker;
    this.#name = name;
    worker.on("message", ({ call, result, error }: Reply) => {
      const waiting = this.#waiting.get(call);
      this.#waiting.delete(call);
      if (error) waiting?.reject(new AppError(error.code, error.message));
      else waiting?.resolve(result);
    });
    worker.on("error", (cause) => this.#end(`its thread failed: ${String(cause)}`, cause));
    worker.on("exit", () => this.#end("it was closed"));
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  /** Rejects with the thread's AppError, or with `unavailable` when it has ended. */
  async call<Name extends keyof Api & string>(
    name: Name,
    argument: Parameters<Api[Name]>[0],
    signal?: AbortSignal,
  ): Promise<Awaited<ReturnType<Api[Name]>>> {
    if (this.#ended) throw this.#ended;
    signal?.throwIfAborted();
    if (this.#waiting.size >= MAX_CALLS) {
      throw new AppError("overloaded", `${MAX_CALLS} calls of ${this.#name} are open`);
    }
    const call = this.#next++;
    const waiting = Promise.withResolvers<unknown>();
    this.#waiting.set(call, waiting);
    const onAbort = () => this.#worker.postMessage({ abort: call } satisfies Abort);
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#worker.postMessage({ call, name, argument } satisfies Call);
    try {
      return (await waiting.promise) as Awaited<ReturnType<Api[Name]>>;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #end(why: string, cause?: unknown): void {
    this.#ended ??= new AppError("unavailable", `${this.#name} is gone: ${why}`, { cause });
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }
}

/** The answering side; `api` has a method for each name. */
export function answerCalls<Api extends ThreadApi<Api>>(port: MessagePort, api: Api): void {
  const running = new Map<number, AbortController>();
  port.on("message", (message: Call | Abort) => {
    if ("abort" in message) {
      running.get(message.abort)?.abort(new AppError("cancelled", "the caller cancelled the call"));
      return;
    }
    const { call, name, argument } = message;
    const controller = new AbortController();
    running.set(call, controller);
    const method = api[name as keyof Api] as unknown as (
      argument: unknown,
      signal: AbortSignal,
    ) => Promise<unknown>;
    method
      .call(api, argument, controller.signal)
      .then(
        (result): Reply => ({ call, result }),
        (error: unknown): Reply => {
          const { code, message: text } = toAppError(error);
          return { call, error: { code, message: text } };
        },
      )
      .then((reply) => {
        running.delete(call);
        port.postMessage(reply);
      });
  });
}
