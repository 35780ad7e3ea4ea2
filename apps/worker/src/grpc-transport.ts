import type { Server } from "@grpc/grpc-js";
import { packageDefinition } from "@heddle/rpc/proto";
import { ServerGrpc } from "@nestjs/microservices";

/** Nest's gRPC transport on a server that is already bound, with our port and checks. */
export class BoundGrpcTransport extends ServerGrpc {
  readonly #server: Server;

  /** Nest serves `services` through its controllers; `addHandlers` adds the hot streams. */
  constructor(server: Server, services: readonly string[], addHandlers: (server: Server) => void) {
    const chosen = Object.entries(packageDefinition).filter(([name]) => services.includes(name));
    super({
      package: "heddle.v1",
      packageDefinition: Object.fromEntries(chosen),
      onLoadPackageDefinition: (_definition: object, bound: Server) => addHandlers(bound),
    });
    this.#server = server;
  }

  override createClient(): Promise<Server> {
    return Promise.resolve(this.#server);
  }
}
