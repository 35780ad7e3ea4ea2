import { Module } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { loadBlockers } from "../nodes/machine-offers.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../nodes/node-directory.ts";
import { replicaBlockers } from "../orchestration/scheduling/replica-blockers.ts";
import { SchedulingModule } from "../orchestration/scheduling/scheduling.module.ts";
import { Scheduling } from "../orchestration/scheduling/scheduling.ts";
import { ModelCatalog } from "./model-catalog.ts";

/** The registered models. */
@Module({
  imports: [SchedulingModule],
  providers: [
    {
      provide: ModelCatalog,
      inject: [CONTROL_PLANE, NODE_DIRECTORY, Scheduling],
      useFactory: openCatalog,
    },
  ],
  exports: [ModelCatalog],
})
export class ModelsModule {}

function openCatalog(
  control: ControlPlane,
  directory: NodeDirectory,
  { plans }: Scheduling,
): ModelCatalog {
  return new ModelCatalog(control, directory, (deployment) => {
    const { misfit, wholeBytes } = directory.divisions.of(deployment);
    return [
      ...replicaBlockers(control, plans, deployment),
      ...loadBlockers(deployment, directory.nodes(), control, () => wholeBytes),
      ...(misfit === undefined ? [] : [misfit]),
    ];
  });
}
