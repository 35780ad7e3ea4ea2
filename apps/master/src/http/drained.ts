import type { ServerResponse } from "node:http";
import { AppError } from "@heddle/base/errors";
import type { FastifyReply } from "fastify";

/**
 * Resolves when the response accepts more; rejects with `cancelled` if its client has disconnected.
 */
export function responseDrained(raw: ServerResponse): Promise<void> {
  if (raw.destroyed) return Promise.reject(new AppError("cancelled", "the reader left"));
  return new Promise((resolve) => {
    const done = () => {
      raw.off("drain", done);
      raw.off("close", done);
      resolve();
    };
    raw.on("drain", done);
    raw.on("close", done);
  });
}

/** Aborts when the answer has ended, or its client has disconnected. */
export function closedSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  reply.raw.once("close", () => gone.abort());
  return gone.signal;
}
