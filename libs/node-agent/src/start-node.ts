import { Health } from "@heddle/rpc/health";
import { closeContext } from "@heddle/rpc/nest/close-context";
import { GrpcHealthController } from "@heddle/rpc/nest/grpc-health.controller";
import { GrpcTransport } from "@heddle/rpc/nest/grpc-transport";
import type { DynamicModule, Type } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { NodeAgent, type NodeAgentOptions, type ReportedState } from "./node-agent.ts";
import type { RunningNode } from "./run-node.ts";

/** Nest's module of a node: its agent and its health, for all other modules. */
class NodeModule {}

export function nodeModule(options: NodeAgentOptions): DynamicModule {
  return {
    module: NodeModule,
    global: true,
    controllers: [GrpcHealthController],
    providers: [
      { provide: NodeAgent, useFactory: () => NodeAgent.open(options) },
      { provide: Health, inject: [NodeAgent], useFactory: (agent: NodeAgent) => agent.health },
    ],
    exports: [NodeAgent],
  };
}

/**
 * Serves the gRPC controllers of a node's module, and attaches the node with the state that the
 * module provides.
 */
export async function startNode(
  module: DynamicModule,
  stateType: Type<ReportedState>,
): Promise<RunningNode> {
  const app = await NestFactory.createMicroservice(module, {
    inject: [NodeAgent],
    useFactory: (agent: NodeAgent) => ({ strategy: new GrpcTransport(agent.server) }),
    logger: false,
    abortOnError: false,
  });
  await app.listen();
  const agent = app.get(NodeAgent);
  const state = app.get(stateType);
  agent.attach(state);
  return {
    nodeId: agent.nodeId,
    address: agent.address,
    heartbeat: () => state.heartbeat(""),
    attachedMasters: () => agent.attachedMasters,
    close: async (drainMs) => {
      agent.stopServing(drainMs);
      await closeContext(app);
    },
  };
}
