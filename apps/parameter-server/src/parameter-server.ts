import "reflect-metadata";
import { randomUUID } from "node:crypto";
import type { Server } from "@grpc/grpc-js";
import { removeStaleSockets } from "@heddle/base/temporary-socket";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import { Health } from "@heddle/rpc/health";
import { TicketVerifier } from "@heddle/rpc/job-ticket";
import { Attachments } from "@heddle/rpc/node/attachments";
import { FollowedCluster } from "@heddle/rpc/node/followed-cluster";
import { nodeIdentity } from "@heddle/rpc/node/identity";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Machine } from "@heddle/rpc/node/machine";
import type { NodeFlags } from "@heddle/rpc/node/node-flags";
import { nodeNameFor, ownCredentials } from "@heddle/rpc/node/own-credentials";
import type { RunningNode } from "@heddle/rpc/node/run-node";
import { bindServer } from "@heddle/rpc/server";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { ServerGrpc } from "@nestjs/microservices";
import { ParameterShardsService } from "./parameter-shards-service.ts";
import { RefusalCounts } from "./refusal-counts.ts";
import { ShardRegistry } from "./shard-registry.ts";

@Module({})
class ParameterServerModule {}

/** Nest's gRPC transport on a server that is already bound. */
class BoundGrpcTransport extends ServerGrpc {
  readonly #server: Server;

  constructor(server: Server, health: Health, shards: ParameterShardsService) {
    super({
      package: "",
      packageDefinition: {},
      onLoadPackageDefinition: (_definition: object, bound: Server) => {
        health.addTo(bound);
        shards.addTo(bound);
      },
    });
    this.#server = server;
  }

  override createClient(): Promise<Server> {
    return Promise.resolve(this.#server);
  }
}

/**
 * Starts a parameter server: attached to every master, with shards of jobs and a health service.
 */
export async function startParameterServer(
  flags: NodeFlags,
  version: string,
  log: NodeLog,
): Promise<RunningNode> {
  const nodeId = nodeIdentity(flags.dataDirectory);
  const credentials = await ownCredentials(flags, "parameter-server", log);
  const machine = new Machine(flags.dataDirectory);
  await machine.start();
  const refusals = new RefusalCounts();
  const tickets = new TicketVerifier(credentials);
  const followed = new FollowedCluster(flags.dataDirectory);
  const { server, address } = await bindServer({
    host: flags.grpcHost,
    port: flags.grpcPort,
    credentials,
    followed,
    onRefused: () => refusals.add("strangers"),
    tickets,
  });
  const health = new Health();
  await removeStaleSockets();
  const shards = new ShardRegistry({ credentials, host: flags.grpcHost, refusals });
  followed.onChange(() => void shards.leaveCluster());
  const service = new ParameterShardsService(shards, flags.dataDirectory, {
    ...{ credentials, tickets, followed },
    address: flags.advertise ?? address,
  });
  const app = await NestFactory.createMicroservice(ParameterServerModule, {
    strategy: new BoundGrpcTransport(server, health, service),
    logger: ["error", "warn", "fatal"],
  });
  await app.listen();
  const register = {
    nodeId,
    incarnation: randomUUID(),
    kind: "NODE_KIND_PARAMETER_SERVER" as const,
    name: nodeNameFor(flags),
    address: flags.advertise ?? address,
    version,
    hardware: machine.hardware(),
  };
  const attachments = new Attachments({
    masters: flags.masters,
    credentials,
    register,
    followed,
    heartbeat: () => heartbeatOf(machine, refusals),
    log,
  });
  const close = async () => {
    health.stopServing();
    machine.stop();
    await attachments.close();
    await app.close();
    await shards.closeAll();
    credentials.close();
  };
  return { nodeId, address: register.address, close };
}

function heartbeatOf(machine: Machine, { totals }: RefusalCounts): Heartbeat {
  const residentBytes = process.memoryUsage.rss();
  return { ...machine.usage(), replicas: [], refusals: totals, residentBytes };
}
