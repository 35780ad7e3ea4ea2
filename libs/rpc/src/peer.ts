import {
  type ChannelOptions,
  Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  type Metadata,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { NodeRole } from "@heddle/pki/node-name";
import { clientChannelOptions } from "./channel-options.ts";
import { type CallerCredentials, callMetadata, channelOf, isEncrypted } from "./credentials.ts";
import type { RpcMethod } from "./proto.ts";
import { fromStatus } from "./status.ts";

/** A connection to another node; every call carries this node's credentials. */
export class Peer {
  readonly address: string;
  readonly #client: Client;
  readonly #metadata: Metadata;

  /**
   * `role` is the required role of the other side, with TLS; `more` are options of the connection.
   */
  constructor(
    address: string,
    own: CallerCredentials,
    role: NodeRole = "master",
    more: ChannelOptions = {},
  ) {
    this.address = address;
    const channel = channelOf(own, role);
    // Nodes are identified by their certificates' URIs, not by host name or address.
    const options = isEncrypted(own) ? { "grpc.ssl_target_name_override": "heddle.node" } : {};
    this.#client = new Client(address, channel, { ...clientChannelOptions, ...more, ...options });
    this.#metadata = callMetadata(own);
  }

  /** One request, one reply. Rejects with the peer's AppError or the one that fits the status. */
  unary<Req, ReqOut, Res, ResOut>(
    method: RpcMethod<Req, ReqOut, Res, ResOut>,
    request: Req,
    options: { readonly deadlineMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<ResOut> {
    const { promise, resolve, reject } = Promise.withResolvers<ResOut>();
    if (options.signal?.aborted) return Promise.reject(abandoned(method.path));
    const call = this.#client.makeUnaryRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      this.#metadata,
      { deadline: Date.now() + options.deadlineMs },
      (error, reply) => {
        options.signal?.removeEventListener("abort", onAbort);
        if (error || reply === undefined) reject(fromStatus(error, this.address));
        else resolve(reply);
      },
    );
    const onAbort = () => call.cancel();
    options.signal?.addEventListener("abort", onAbort, { once: true });
    return promise;
  }

  /** A stream of replies, ended by the signal or by leaving the loop; it has no deadline. */
  async *serverStream<Req, ReqOut, Res, ResOut>(
    method: RpcMethod<Req, ReqOut, Res, ResOut>,
    request: Req,
    signal: AbortSignal,
  ): AsyncGenerator<ResOut, void, undefined> {
    if (signal.aborted) throw abandoned(method.path);
    const call: ClientReadableStream<ResOut> = this.#client.makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      this.#metadata,
      {},
    );
    const onAbort = () => call.cancel();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      for await (const reply of call) yield reply as ResOut;
    } catch (error) {
      throw fromStatus(error, this.address);
    } finally {
      signal.removeEventListener("abort", onAbort);
      call.cancel();
    }
  }

  /** A long-lived bidirectional stream; only the keepalive bounds its silence. */
  duplex<Req, ReqOut, Res, ResOut>(
    method: RpcMethod<Req, ReqOut, Res, ResOut>,
  ): ClientDuplexStream<Req, ResOut> {
    return this.#client.makeBidiStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      this.#metadata,
      {},
    );
  }

  close(): void {
    this.#client.close();
  }
}

function abandoned(path: string): AppError {
  return new AppError("cancelled", `the call ${path} was given up before it was sent`);
}
