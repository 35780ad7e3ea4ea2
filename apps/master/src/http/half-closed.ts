import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { isEventStream } from "./event-stream.ts";

/** How often a client that sends no more is asked whether it still reads. */
const PROBE_EVERY_MS = 250;
/** Looks without a sign after which one that cannot be asked is taken for gone. */
const MAX_SILENT_LOOKS = 2;

/**
 * Answers clients that close their sending side behind the request and wait, as `nc -N` does. A
 * closed connection begins with the very same packet; they differ in what comes back when one writes:
 * nothing, or a reset. So such a client is written to at once and then four times a second: `102
 * Processing` before the answer, a comment in a stream of events. The first reset frees the call.
 * HTTP/1.0 has no such word, nor has the middle of a file: there half a second of silence decides.
 */
export function answerHalfClosed(server: Server): void {
  // Of Node's server, though not in its types; without it Node ends its own side at once.
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
  let seen = { bytes: socket.bytesWritten, silentLooks: 0 };
  const look = (): void => {
    if (exchange.response.writableEnded) clearInterval(timer);
    // What waits to be sent is a probe by itself.
    else if (socket.writableLength > 0 || probe(exchange)) return;
    else {
      const isSilent = socket.bytesWritten === seen.bytes;
      seen = { bytes: socket.bytesWritten, silentLooks: isSilent ? seen.silentLooks + 1 : 0 };
      if (seen.silentLooks > MAX_SILENT_LOOKS) socket.destroy();
    }
  };
  const timer = setInterval(look, PROBE_EVERY_MS);
  socket.once("close", () => clearInterval(timer));
  look();
}

/** Writes what means nothing to the client; false where there is no such thing. */
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
