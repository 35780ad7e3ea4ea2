import type { DivisionNotes } from "@heddle/contracts/generated/heddle/v1/DivisionNotes";
import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { divisionsService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { NODE_DIRECTORY, type NodeDirectory } from "../node-directory.ts";

/** Deployments of one answer, which stays below the bound of a message. */
const MAX_NOTES = 4_096;

/** Divisions of proto/divisions.proto. */
@Controller()
export class DivisionsController {
  readonly #directory: NodeDirectory;

  constructor(@Inject(NODE_DIRECTORY) directory: NodeDirectory) {
    this.#directory = directory;
  }

  @GrpcCall(divisionsService, "Read")
  read(): DivisionNotes {
    const all = [...this.#directory.divisions.all].slice(0, MAX_NOTES);
    return { notes: all.map(([deployment, note]) => ({ deployment, ...note })) };
  }
}
