import type { IncomingMessage, ServerResponse } from "node:http";
import { Inject } from "@nestjs/common";
import { HttpAdapterHost } from "@nestjs/core";
import type { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance } from "fastify";
import inject from "light-my-request";

/** A call of the API by this process itself, for a key. */
export interface InProcessCall {
  readonly path: string;
  readonly body: string;
  /** The id of the key by whose permissions and limits it runs. */
  readonly keyId: string;
  /** In which it acts; the key's own if absent. */
  readonly project: string | undefined;
}

/** The answer to such a call, whole. */
export interface InProcessReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/**
 * Calls of the API without a connection: each goes through the router, the access check and its
 * controller, as a caller's does. They have the lowest priority.
 */
export class InProcessCalls {
  readonly #host: HttpAdapterHost<FastifyAdapter>;
  /** Keyed by the request: no header of a caller can claim to be one of these. */
  readonly #keys = new WeakMap<IncomingMessage, string>();

  constructor(@Inject(HttpAdapterHost) host: HttpAdapterHost<FastifyAdapter>) {
    this.#host = host;
  }

  /** The key of a call of this process; undefined for a caller's. */
  keyOf(request: IncomingMessage): string | undefined {
    return this.#keys.get(request);
  }

  /** Rejects when the signal aborts; the call then ends as when a caller closes its connection. */
  async post(
    { path, body, keyId, project }: InProcessCall,
    signal: AbortSignal,
  ): Promise<InProcessReply> {
    const instance = this.#host.httpAdapter.getInstance<FastifyInstance>();
    let hangUp = () => {};
    const { statusCode, headers, payload } = await inject(
      (request, response) => {
        const message = request as unknown as IncomingMessage;
        const raw = response as unknown as ServerResponse;
        this.#keys.set(message, keyId);
        // Once its body is read, the request itself no longer notices the signal.
        hangUp = () => raw.destroy();
        signal.addEventListener("abort", hangUp, { once: true });
        instance.routing(message, raw);
      },
      {
        method: "POST",
        url: path,
        headers: {
          "content-type": "application/json",
          "x-heddle-priority": "batch",
          ...(project !== undefined && { "x-heddle-project": project }),
        },
        payload: body,
        signal,
      },
    ).finally(() => signal.removeEventListener("abort", hangUp));
    return { status: statusCode, headers, body: payload };
  }
}
