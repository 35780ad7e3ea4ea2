import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import { NodeAgent, type ReportedState } from "@heddle/node-agent/node-agent";
import { type DynamicModule, Inject, Injectable, Module } from "@nestjs/common";
import { RefusalCounts } from "./refusal-counts.ts";
import { ShardRegistry } from "./shard-registry.ts";
import { ShardsController } from "./shards.controller.ts";

/** The parameter server's part of a heartbeat. */
@Injectable()
export class ParameterServerState implements ReportedState {
  readonly #node: NodeAgent;
  readonly #refusals: RefusalCounts;

  constructor(@Inject(NodeAgent) node: NodeAgent, @Inject(RefusalCounts) refusals: RefusalCounts) {
    this.#node = node;
    this.#refusals = refusals;
  }

  registration(): Partial<Register> {
    return {};
  }

  heartbeat(): Heartbeat {
    const residentBytes = process.memoryUsage.rss();
    const refusals = this.#refusals.totals;
    return { ...this.#node.machine.usage(), replicas: [], refusals, residentBytes };
  }
}

/** Nest's module of a parameter server: shards of jobs, on a node of its own. */
export function parameterServerModule(node: DynamicModule, refusals: RefusalCounts): DynamicModule {
  return {
    module: ParameterServerModule,
    imports: [node],
    controllers: [ShardsController],
    providers: [
      ParameterServerState,
      { provide: RefusalCounts, useValue: refusals },
      { provide: ShardRegistry, inject: [NodeAgent, RefusalCounts], useFactory: openRegistry },
    ],
  };
}

@Module({})
class ParameterServerModule {}

function openRegistry(node: NodeAgent, refusals: RefusalCounts): ShardRegistry {
  const { credentials, followed, options } = node;
  const shards = new ShardRegistry({ credentials, host: options.flags.grpcHost, refusals });
  followed.onChange(() => void shards.leaveCluster());
  return shards;
}
