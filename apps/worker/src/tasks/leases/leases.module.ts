import { NodeAgent } from "@heddle/node-agent/node-agent";
import { Inject, Module, type OnModuleDestroy } from "@nestjs/common";
import { WORKER_OPTIONS, type WorkerOptions } from "../../config/worker-options.ts";
import { ExecutorsModule } from "../executors.module.ts";
import { WorkerExecutors } from "../worker-executors.ts";
import { LeaseGuard } from "./lease-guard.ts";
import { LeaseKeeper } from "./lease-keeper.ts";

/** The worker's lease, and the guard that enforces it where the worker cannot. */
@Module({
  imports: [ExecutorsModule],
  providers: [
    {
      provide: LeaseKeeper,
      inject: [WORKER_OPTIONS, NodeAgent, WorkerExecutors],
      useFactory: openLease,
    },
  ],
  exports: [LeaseKeeper],
})
export class LeasesModule implements OnModuleDestroy {
  readonly #lease: LeaseKeeper;

  constructor(@Inject(LeaseKeeper) lease: LeaseKeeper) {
    this.#lease = lease;
  }

  onModuleDestroy(): Promise<void> {
    return this.#lease.close();
  }
}

async function openLease(
  { dataDirectory }: WorkerOptions,
  { nodeId, followed }: NodeAgent,
  { cgroup, containerCli, leaseFolder }: WorkerExecutors,
): Promise<LeaseKeeper> {
  const lease = await LeaseKeeper.open(dataDirectory, followed);
  if (leaseFolder !== "") await lease.copyTo(leaseFolder);
  lease.guardBy(new LeaseGuard({ nodeId, cgroup, containerCli, ...lease.guardOrders }));
  return lease;
}
