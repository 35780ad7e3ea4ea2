import { createServer, type RequestListener } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { AppError } from "@heddle/base/errors";
import type { Logger } from "@heddle/observability/logger";
import type { MasterConfig } from "../config/config.ts";
import { restartWithHeap } from "../control-plane/larger-heap.ts";
import { largestHeapMib, memoryAdvice } from "../control-plane/state-memory.ts";
import { MIN_TLS, readServerCertificate } from "../http/connections/server-certificate.ts";
import { errorReply } from "../http/error-reply.ts";
import { requestIdOf } from "../http/request-id.ts";

const TEXT = { "content-type": "text/plain; charset=utf-8" };

/**
 * Continues where this master's memory does not hold the state, and releases the data directory.
 * Restarts with a larger heap where possible; else serves errors with advice until a signal ends it.
 */
export async function goOnWithoutMemory(
  { message: why }: AppError,
  { httpHost, httpPort, httpTls, maxHeapMib }: MasterConfig,
  log: Logger,
): Promise<void> {
  const mib = maxHeapMib || largestHeapMib();
  restartWithHeap(mib, () => log.warn({ why, mib }, "starting again with a larger heap"));
  const message = `This master serves nothing: ${why}. ${memoryAdvice()}`;
  const answer = haltedAnswer(new AppError("insufficient_memory", message));
  const server = httpTls
    ? createSecureServer({ ...readServerCertificate(httpTls), minVersion: MIN_TLS }, answer)
    : createServer(answer);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(httpPort, httpHost, resolve);
  });
  const { address, port } = server.address() as AddressInfo;
  log.fatal({ code: "insufficient_memory", http: `${address}:${port}` }, message);
  const end = () => process.exit(0);
  process.on("SIGTERM", end).on("SIGINT", end);
}

/** It is live, so that no supervisor restarts it in a loop, but not ready; every answer says why. */
function haltedAnswer(error: AppError): RequestListener {
  return (request, response) => {
    const url = request.url ?? "/";
    const [path] = url.split("?");
    if (path === "/healthz" || path === "/livez") {
      response.writeHead(200, TEXT).end("ok\n");
    } else if (path === "/readyz") {
      response.writeHead(503, TEXT).end(`[-]memory failed: ${error.message}\nnot ready\n`);
    } else {
      const { status, headers, body } = errorReply(error, requestIdOf(request), url);
      response.writeHead(status, headers).end(body);
    }
  };
}
