import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { modelIn } from "@heddle/control/model-names";
import type { ApiKeyRecord } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { InProcessCalls, type InProcessReply } from "../../http/in-process-calls.ts";
import { BatchPace } from "./batch-pace.ts";
import type { BatchLine } from "./input-lines.ts";

/** Tries of a line that fails for another reason than a lack of room. */
const MAX_TRIES = 4;
const MIN_WAIT_MS = 500;
const MAX_WAIT_MS = 30_000;

/** A line with where and for which key it is called. */
export interface LineCall {
  readonly path: string;
  readonly line: BatchLine;
  readonly key: string;
  readonly project: string | undefined;
}

/** Calls the lines of batches until they have an answer that stays. */
export class BatchCalls {
  readonly #calls: InProcessCalls;
  readonly #pace: BatchPace;
  readonly #control: ControlPlane;

  constructor(
    @Inject(InProcessCalls) calls: InProcessCalls,
    @Inject(BatchPace) pace: BatchPace,
    @Inject(CONTROL_PLANE) control: ControlPlane,
  ) {
    this.#calls = calls;
    this.#pace = pace;
    this.#control = control;
  }

  /** Waits as long as there is no room; other failures are tried again a few times. */
  async call({ path, line, key, project }: LineCall, signal: AbortSignal): Promise<InProcessReply> {
    // A batch has one priority, whatever its lines ask for.
    const body = JSON.stringify({ ...line.body, service_tier: undefined });
    for (let tries = 1, waits = 0; ; tries++) {
      const leave = await this.#pace.enter(this.#deploymentOf(line, key, project), signal);
      let reply: InProcessReply;
      try {
        reply = await this.#calls.post({ path, body, keyId: this.#keyOf(key), project }, signal);
      } finally {
        leave();
      }
      signal.throwIfAborted();
      if (reply.status < 400 || reply.headers["x-should-retry"] !== "true") return reply;
      const isRoom = [429, 503, 504].includes(reply.status);
      if (isRoom) tries--;
      else if (tries >= MAX_TRIES) return reply;
      await abortableDelay(waitMs(reply, ++waits), signal);
      signal.throwIfAborted();
    }
  }

  #deploymentOf(
    { body: { model } }: BatchLine,
    key: string,
    project: string | undefined,
  ): string | undefined {
    if (typeof model !== "string") return undefined;
    const { state } = this.#control;
    return modelIn(state, model, project ?? state.keys.get(key)?.project)?.deployment;
  }

  /** The key, or the one that replaced it by rotation where it is no longer valid. */
  #keyOf(id: string): string {
    const { keys } = this.#control.state;
    const first = keys.get(id);
    if (first && isValid(first)) return id;
    const successors = new Map<string, ApiKeyRecord>();
    for (const key of keys.values()) {
      if (key.rotatedFrom !== undefined) successors.set(key.rotatedFrom, key);
    }
    const seen = new Set([id]);
    for (let next = successors.get(id); next && !seen.has(next.id); ) {
      if (isValid(next)) return next.id;
      seen.add(next.id);
      next = successors.get(next.id);
    }
    return id;
  }
}

function isValid({ revokedAtMs, expiresAtMs }: ApiKeyRecord): boolean {
  return revokedAtMs === undefined && (expiresAtMs === undefined || expiresAtMs > Date.now());
}

function waitMs({ headers }: InProcessReply, waits: number): number {
  const asked = Number(headers["retry-after-ms"] ?? 0);
  const own = MIN_WAIT_MS * 2 ** Math.min(waits - 1, 6);
  return Math.min(MAX_WAIT_MS, Math.max(asked, own));
}
