import { NodeAgent } from "@heddle/node-agent/node-agent";
import { type DynamicModule, Module } from "@nestjs/common";
import { TASK_NODE, taskNode } from "../tasks/task-node.ts";
import { WORKER_OPTIONS, type WorkerOptions } from "./worker-options.ts";

@Module({})
class ConfigModule {}

/** The worker's flags, and its node as tasks see it, for all other modules. */
export function workerConfigModule(options: WorkerOptions): DynamicModule {
  const providers = [
    { provide: WORKER_OPTIONS, useValue: options },
    { provide: TASK_NODE, inject: [NodeAgent], useFactory: taskNode },
  ];
  return { module: ConfigModule, global: true, providers, exports: providers };
}
