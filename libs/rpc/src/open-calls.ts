import type { PeerCertificate } from "node:tls";
import {
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerListener,
} from "@grpc/grpc-js";
import type { NodeClaim } from "@heddle/pki/node-name";
import { toStatus } from "./status.ts";

type Listener = Parameters<ServerInterceptingCallInterface["start"]>[0];

/** The calls of nodes that a server answers now: a revocation ends those that are open. */
export class OpenCalls {
  readonly #callers = new Map<OpenCall, NodeClaim>();

  add(call: OpenCall, caller: NodeClaim): void {
    this.#callers.set(call, caller);
    call.onEnd(() => this.#callers.delete(call));
  }

  /** Ends those for whose caller and certificate there is an error now. */
  end(errorOf: (caller: NodeClaim, shown: PeerCertificate) => Error | undefined): void {
    for (const [call, caller] of this.#callers) {
      const shown = call.getAuthContext().sslPeerCertificate;
      const error = shown && errorOf(caller, shown);
      if (error) call.cut(error);
    }
  }
}

/** A call that can be ended from outside, whatever its caller and its handler do. */
export class OpenCall extends ServerInterceptingCall {
  readonly #call: ServerInterceptingCallInterface;
  #cancel: (() => void) | undefined;
  #onEnd: (() => void) | undefined;
  #isCut = false;

  constructor(call: ServerInterceptingCallInterface, listener: ServerListener) {
    super(call, {
      start: (next) => {
        next({
          ...listener,
          onReceiveMessage: (message, pass) => {
            if (!this.#isCut) pass(message);
          },
          onCancel: () => this.#onEnd?.(),
        });
      },
      sendMessage: (message, pass) => {
        if (!this.#isCut) pass(message);
      },
      sendStatus: (status, pass) => {
        this.#onEnd?.();
        if (!this.#isCut) pass(status);
      },
    });
    this.#call = call;
  }

  onEnd(listener: () => void): void {
    this.#onEnd = listener;
  }

  override start(listener: Listener): void {
    let isCancelled = false;
    this.#cancel = () => {
      if (isCancelled) return;
      isCancelled = true;
      listener.onCancel();
    };
    super.start({
      onReceiveMetadata: (metadata) => listener.onReceiveMetadata(metadata),
      onReceiveMessage: (message) => listener.onReceiveMessage(message),
      onReceiveHalfClose: () => listener.onReceiveHalfClose(),
      onCancel: this.#cancel,
    });
  }

  /** The caller gets the error, and its handler is cancelled at once. */
  cut(error: Error): void {
    this.#isCut = true;
    this.#onEnd?.();
    this.#call.sendStatus(toStatus(error));
    this.#cancel?.();
  }
}
