import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { isEventStream } from "../event-stream.ts";

/** How often a half-closed client is probed. */
const PROBE_EVERY_MS = 250;
/** Checks without a sign after which a client that cannot be probed counts as gone. */
const MAX_SILENT_POLLS = 2;

/**
 * Answers clients that close their sending side after the request and wait, as `nc -N` does. A full
 * close starts with the same packet; only a write shows the difference, by a reset. So such a
 * client is written to four times a second: `102 Processing` before the answer, a comment in an
 * event stream. The first reset frees the call. HTTP/1.0 and file bodies have no such probe: there
 * half a second of silence decides.
 */
export function answerHalfClosed(server: Server): void {
  // An option of Node's server that its types lack; without it Node closes its own side at once.
  Object.assign(server, { httpAllowHalfOpen: true });
  const latest = new WeakMap<Socket, Exchange>();
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    latest.set(request.socket, { request, response });
  });
  server.on("connection", (socket: Socket) => {
    socket.once("end", () => {
      const exchange = latest.get(socket);
      if (exchange && !exchange.response.writableEnded) watch(socket, exchange);
    });
  });
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

function watch(socket: Socket, exchange: Exchange): void {
  let seen = { bytes: socket.bytesWritten, silentPolls: 0 };
  const check = (): void => {
    if (exchange.response.writableEnded) clearInterval(timer);
    // Pending data is a probe by itself.
    else if (socket.writableLength > 0 || probe(exchange)) return;
    else {
      const isSilent = socket.bytesWritten === seen.bytes;
      seen = { bytes: socket.bytesWritten, silentPolls: isSilent ? seen.silentPolls + 1 : 0 };
      if (seen.silentPolls > MAX_SILENT_POLLS) socket.destroy();
    }
  };
  const timer = setInterval(check, PROBE_EVERY_MS);
  socket.once("close", () => clearInterval(timer));
  check();
}

/** Writes a probe that the client ignores; false if there is none. */
function probe({ request, response }: Exchange): boolean {
  if (!response.headersSent) {
    if (request.httpVersion !== "1.1") return false;
    response.writeProcessing();
    return true;
  }
  if (!isEventStream(response)) return false;
  response.write(": \n\n");
  return true;
}
