import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { clusterService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { type AttachStream, NodeRegistry } from "./node-registry.ts";

/** The service to which nodes attach. */
@Controller()
export class AttachController {
  readonly #registry: NodeRegistry;

  constructor(@Inject(NodeRegistry) registry: NodeRegistry) {
    this.#registry = registry;
  }

  @GrpcCall(clusterService, "Attach")
  attach(stream: AttachStream): void {
    this.#registry.attach(stream);
  }
}
