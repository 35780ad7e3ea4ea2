import { AppError } from "@heddle/base/errors";
import { Controller, Get, Inject, Param } from "@nestjs/common";
import { Permit } from "../http/access.ts";
import { viewReplica } from "../models/model-view.ts";
import { NODE_DIRECTORY, type NodeDirectory, type NodeView } from "../ports.ts";

@Controller("api/v1/workers")
export class WorkersController {
  readonly #directory: NodeDirectory;

  constructor(@Inject(NODE_DIRECTORY) directory: NodeDirectory) {
    this.#directory = directory;
  }

  @Get()
  @Permit("cluster:read", "Lists the nodes that are attached to this master.")
  list() {
    return { object: "list", data: this.#directory.nodes().map(viewNode) };
  }

  @Get(":id")
  @Permit("cluster:read", "Shows one attached node.")
  get(@Param("id") id: string) {
    const node = this.#directory.nodes().find((candidate) => candidate.id === id);
    if (!node) throw new AppError("not_found", `No node with the id ${id} is attached.`);
    return viewNode(node);
  }
}

function viewNode(node: NodeView) {
  return {
    id: node.id,
    object: "worker",
    kind: node.kind,
    name: node.name,
    address: node.address,
    version: node.version,
    status: node.state,
    attached_at: new Date(node.attachedAtMs).toISOString(),
    last_seen_at: new Date(node.lastSeenMs).toISOString(),
    cpu_percent: node.cpuPercent,
    cpu_count: node.cpuCount,
    memory_bytes: node.memoryBytes,
    memory_used_bytes: node.memoryUsedBytes,
    gpus: node.gpus.map((gpu) => ({
      index: gpu.index,
      uuid: gpu.uuid,
      name: gpu.name,
      memory_bytes: gpu.memoryBytes,
      memory_used_bytes: gpu.memoryUsedBytes,
      utilization_percent: gpu.utilizationPercent,
      temperature_celsius: gpu.temperatureCelsius,
      power_watts: gpu.powerWatts,
    })),
    replicas: node.replicas.map((replica) => ({
      deployment: replica.deployment,
      ...viewReplica(node.id, replica),
    })),
  };
}
