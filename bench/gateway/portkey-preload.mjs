import { Server } from "node:net";

// Preloaded into the peer gateway, whose code is unchanged.

// Listens on loopback instead of every interface.
const listen = Server.prototype.listen;

Server.prototype.listen = function listenOnLoopback(...args) {
  const options = typeof args[0] === "object" ? args[0] : { port: Number(args[0]) };
  const callback = args.find((argument) => typeof argument === "function");
  return listen.call(this, { ...options, host: "127.0.0.1" }, callback);
};

// Release 1.15.2 appends to the headers of a streamed upstream response, which fetch forbids
// ("TypeError: immutable"), so that every stream answers 500. It gets a copy.
const plainFetch = globalThis.fetch;

globalThis.fetch = async (...args) => {
  const response = await plainFetch(...args);
  if (response.headers.get("content-type") === "text/event-stream") {
    Object.defineProperty(response, "headers", { value: new Headers(response.headers) });
  }
  return response;
};
