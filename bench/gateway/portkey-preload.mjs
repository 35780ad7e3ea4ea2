import { Server } from "node:net";

// Preloaded into the peer gateway, whose code is left as it is.

// It would listen on every interface: it listens on loopback instead.
const listen = Server.prototype.listen;

Server.prototype.listen = function listenOnLoopback(...args) {
  const options = typeof args[0] === "object" ? args[0] : { port: Number(args[0]) };
  const callback = args.find((argument) => typeof argument === "function");
  return listen.call(this, { ...options, host: "127.0.0.1" }, callback);
};

// Release 1.15.2 appends to the headers of the upstream's response when it streams, which fetch
// forbids ("TypeError: immutable"), so that every stream answers 500. It is given a copy.
const plainFetch = globalThis.fetch;

globalThis.fetch = async (...args) => {
  const response = await plainFetch(...args);
  if (response.headers.get("content-type") === "text/event-stream") {
    Object.defineProperty(response, "headers", { value: new Headers(response.headers) });
  }
  return response;
};
