import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import { type DynamicModule, Module } from "@nestjs/common";
import { ARTIFACT_BYTES } from "../artifacts/artifact-source.ts";
import { ArtifactsModule } from "../artifacts/artifacts.module.ts";
import { WORKER_OPTIONS, type WorkerOptions } from "../config/worker-options.ts";
import { OuterPlaces } from "../tasks/outer-places.ts";
import {
  ENGINES,
  type EnginePorts,
  type PeerStages,
  type PullHow,
  type StagePorts,
} from "./engine-ports.ts";
import { InferenceController } from "./inference.controller.ts";
import { ModelPods } from "./pods/model-pods.ts";
import { withModelPods } from "./pods/with-model-pods.ts";
import { ReplicaSet } from "./replica-set.ts";
import { ReplicasController } from "./replicas.controller.ts";
import { withSimulatedGpus } from "./simulated-device.ts";
import { joinPeers as joinStagePeers } from "./stages/join-peers.ts";
import { weightsPeer } from "./stages/peer-weights.ts";
import { StagesController } from "./stages/stages.controller.ts";

@Module({})
class InferenceModule {}

/** The replicas of models on this worker, with these engines, and the calls to them. */
export function inferenceModule(given: EnginePorts): DynamicModule {
  return {
    module: InferenceModule,
    imports: [ArtifactsModule],
    controllers: [ReplicasController, InferenceController, StagesController],
    providers: [
      {
        provide: ENGINES,
        inject: [NodeAgent, ARTIFACT_BYTES, OuterPlaces, WORKER_OPTIONS],
        useFactory: async (
          node: NodeAgent,
          bytes: ArtifactBytes,
          { pods }: OuterPlaces,
          { dataDirectory }: WorkerOptions,
        ) => {
          const ports = enginesOn(node, bytes, given);
          if (!pods) return ports;
          const { nodeId, options } = node;
          return withModelPods(
            ports,
            await ModelPods.find(pods, nodeId, dataDirectory, options.log),
          );
        },
      },
      {
        provide: ReplicaSet,
        inject: [NodeAgent, ENGINES, WORKER_OPTIONS],
        useFactory: (node: NodeAgent, engines: EnginePorts, { engineDefaults }: WorkerOptions) =>
          new ReplicaSet(engines, engineDefaults, node.options.log, () => node.report()),
      },
    ],
    exports: [ReplicaSet],
  };
}

function withArtifacts(stages: StagePorts, readArtifact: ArtifactBytes): StagePorts {
  return { ...stages, index: (weights, how) => stages.index(weights, { ...how, readArtifact }) };
}

/** The engines of the node's devices, with weights from artifacts of jobs and stages of other nodes. */
function enginesOn(
  { machine, credentials }: NodeAgent,
  readArtifact: ArtifactBytes,
  given: EnginePorts,
): EnginePorts {
  const joinPeers: PeerStages = (stage, build, known) =>
    joinStagePeers(stage, build, credentials, known);
  const withPeers = (how: PullHow) => {
    const peers = how.holders?.map((address) => weightsPeer(address, credentials));
    return { ...how, readArtifact, peers };
  };
  const ports: EnginePorts = {
    ...given,
    pullWeights: (weights, how) => given.pullWeights(weights, withPeers(how)),
    stages: given.stages && withArtifacts(given.stages, readArtifact),
    startEngine: (start) => given.startEngine({ ...start, joinPeers }),
  };
  return withSimulatedGpus(ports, () => machine.gpus());
}
