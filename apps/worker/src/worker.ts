import "reflect-metadata";
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { EngineOptions } from "@heddle/contracts/engine";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Health } from "@heddle/rpc/health";
import { Attachment } from "@heddle/rpc/node/attachment";
import { nodeIdentity } from "@heddle/rpc/node/identity";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Machine } from "@heddle/rpc/node/machine";
import type { NodeFlags } from "@heddle/rpc/node/node-flags";
import { ownCredentials } from "@heddle/rpc/node/own-credentials";
import type { RunningNode } from "@heddle/rpc/node/run-node";
import { encodeReplica } from "@heddle/rpc/node-codec";
import { workerInferenceService } from "@heddle/rpc/proto";
import { bindServer } from "@heddle/rpc/server";
import { type DynamicModule, type INestMicroservice, Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import type { EnginePorts } from "./engine-ports.ts";
import { BoundGrpcTransport } from "./grpc-transport.ts";
import { InferenceSession } from "./inference-session.ts";
import { ModelsController, PULL_WEIGHTS, REPLICAS } from "./models.controller.ts";
import { ReplicaSet } from "./replica-set.ts";

export interface WorkerOptions extends NodeFlags {
  readonly version: string;
  /** Options of engines that a deployment leaves open. */
  readonly engineDefaults: EngineOptions;
}

@Module({})
class WorkerModule {
  static of(replicas: ReplicaSet, ports: EnginePorts): DynamicModule {
    return {
      module: WorkerModule,
      controllers: [ModelsController],
      providers: [
        { provide: REPLICAS, useValue: replicas },
        { provide: PULL_WEIGHTS, useValue: ports.pullWeights },
      ],
    };
  }
}

/** Starts a worker: serves models over gRPC and keeps attached to every master. */
export async function startWorker(
  options: WorkerOptions,
  ports: EnginePorts,
  log: NodeLog,
): Promise<RunningNode> {
  const nodeId = nodeIdentity(options.dataDirectory);
  const credentials = await ownCredentials(options, "worker", log);
  const machine = new Machine(options.dataDirectory);
  await machine.start();
  let attachments: Attachment[] = [];
  const replicas = new ReplicaSet(ports, options.engineDefaults, log, () => {
    for (const attachment of attachments) attachment.report();
  });
  const health = new Health();
  const { app, address } = await serve({ ...options, credentials }, replicas, ports, health);
  const advertised = options.advertise ?? address;
  const incarnation = randomUUID();
  attachments = options.masters.map(
    (master) =>
      new Attachment({
        master,
        credentials,
        register: {
          nodeId,
          incarnation,
          kind: "NODE_KIND_WORKER",
          name: options.name ?? hostname(),
          address: advertised,
          version: options.version,
          hardware: machine.hardware(),
        },
        heartbeat: () => ({
          ...machine.usage(),
          replicas: replicas.statuses().map(encodeReplica),
        }),
        log,
      }),
  );
  const close = async (drainMs: number) => {
    health.stopServing();
    machine.stop();
    // A master sends nothing more to a node that has left, but reads the answers it still gives.
    await Promise.all(attachments.map((attachment) => attachment.close()));
    await drained(replicas, drainMs);
    await replicas.close();
    await app.close();
    credentials.close();
  };
  return { nodeId, address: advertised, close };
}

async function serve(
  options: WorkerOptions & { readonly credentials: NodeCredentials },
  replicas: ReplicaSet,
  ports: EnginePorts,
  health: Health,
): Promise<{ app: INestMicroservice; address: string }> {
  const { server, address } = await bindServer({
    host: options.grpcHost,
    port: options.grpcPort,
    credentials: options.credentials,
  });
  const strategy = new BoundGrpcTransport(server, ["heddle.v1.WorkerModels"], (bound) => {
    health.addTo(bound);
    bound.addService(workerInferenceService, {
      session: (stream: ConstructorParameters<typeof InferenceSession>[0]) => {
        new InferenceSession(stream, replicas);
      },
    });
  });
  const app = await NestFactory.createMicroservice(WorkerModule.of(replicas, ports), {
    strategy,
    logger: ["error", "warn", "fatal"],
  });
  await app.listen();
  return { app, address };
}

async function drained(replicas: ReplicaSet, drainMs: number): Promise<void> {
  const end = performance.now() + drainMs;
  while (performance.now() < end && replicas.openRequests > 0) await delay(20);
}
