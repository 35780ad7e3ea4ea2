import { AppError } from "@heddle/base/errors";
import { clusterOperations } from "@heddle/contracts/api/cluster";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { Controller, Inject, Param, Query, Req } from "@nestjs/common";
import type { ControlGroup } from "../../control-plane/control-group.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { ContentCopies } from "../../documents/content-copies.ts";
import type { CallerRequest } from "../../http/access.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { ClusterReport } from "../../metrics/cluster-report.ts";

/** What an administrator does with the masters as a group. */
@Controller()
export class MastersController {
  readonly #report: ClusterReport;
  readonly #control: ControlPlane;
  readonly #copies: ContentCopies;

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ContentCopies) copies: ContentCopies,
  ) {
    this.#report = report;
    this.#control = control;
    this.#copies = copies;
  }

  @Serves(clusterOperations.transfer)
  async transfer(@Req() request: CallerRequest) {
    const { to } = bodyOf(clusterOperations.transfer, request);
    await this.#group.transferLeadership(to);
    return this.#report.status();
  }

  @Serves(clusterOperations.snapshot)
  async snapshot() {
    await this.#group.takeSnapshot();
    return this.#report.status();
  }

  @Serves(clusterOperations.removeMaster)
  async remove(
    @Param("name") name: string,
    @Query() { force }: QueryOf<typeof clusterOperations.removeMaster>,
  ) {
    if (!force) await this.#copies.awaitWithout(name);
    await this.#group.removeMember(name);
    return this.#report.status();
  }

  get #group(): ControlGroup {
    if (this.#control.group) return this.#control.group;
    throw new AppError("precondition_failed", "This master is not part of a group.");
  }
}
