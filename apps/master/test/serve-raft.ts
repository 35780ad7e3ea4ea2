import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import type { BoundServer } from "@heddle/rpc/server";
import { RaftController } from "../src/control-plane/raft/raft.controller.ts";
import { RaftService } from "../src/control-plane/raft/raft-service.ts";

class RaftModule {}

/** Serves the calls of other masters; a control plane is opened with the result. */
export async function serveRaft({ server }: BoundServer): Promise<RaftService> {
  const parts = { controllers: [RaftController], providers: [RaftService] };
  return (await serveControllers({ module: RaftModule, ...parts }, server)).get(RaftService);
}
