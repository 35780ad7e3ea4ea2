import { Inject, type OnApplicationBootstrap } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { ProjectSecrets } from "../control-plane/project-secrets.ts";
import { propose } from "../control-plane/propose.ts";
import { LeaderLoops } from "./leader-loops.ts";

/** Below the time after which a master says that it needs its former secrets key no more. */
const POLL_MS = 2_000;
const PAUSE_MS = 250;

/** Puts projects' secrets under the masters' present secrets key. */
export class SecretLoop implements OnApplicationBootstrap {
  readonly #loops: LeaderLoops;
  readonly #control: ControlPlane;
  readonly #secrets: ProjectSecrets;

  constructor(
    @Inject(LeaderLoops) loops: LeaderLoops,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ProjectSecrets) secrets: ProjectSecrets,
  ) {
    this.#loops = loops;
    this.#control = control;
    this.#secrets = secrets;
  }

  onApplicationBootstrap(): void {
    this.#loops.run({
      name: "secrets under the present key",
      pauseMs: PAUSE_MS,
      concerns: (command) => command === undefined,
      step: async () => {
        for (const record of [...this.#secrets.all]) {
          const sealed = this.#secrets.resealed(record);
          if (!sealed) continue;
          const { project, name, version } = record;
          const atMs = Date.now();
          await propose(this.#control, {
            type: "secret.reseal",
            atMs,
            project,
            name,
            version,
            ...sealed,
          });
        }
        return this.#loops.clock.wallMs() + POLL_MS;
      },
    });
  }
}
